/* Files and folders under temporary names: what is removed where a signal ends the program.
 *
 * Whoever makes one says so before, and forgets it once it is gone or has its last name. The list
 * is for the whole process, any thread may change it, and a signal handler may read it. */
#ifndef IR_BASE_TEMPORARY_H
#define IR_BASE_TEMPORARY_H

void temporary_add(const char *path);
/* The same of a finished file, where the folder that it lies in is temporary. */
void temporary_add_inner(const char *path);
/* And, of a folder, all that lies in it. A path that was not added is nothing. */
void temporary_forget(const char *path);

/* Async-signal-safe: removes all of them. Whoever calls it ends the process. */
void temporary_remove_all(void);

#endif
