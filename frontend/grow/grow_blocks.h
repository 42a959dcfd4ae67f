/* Depth: what blocks are made of. */
#ifndef FRONTEND_GROW_GROW_BLOCKS_H
#define FRONTEND_GROW_GROW_BLOCKS_H

#include "frontend/grow/grow_pair.h"

/* Sets grown->block_of and block_added: a block is made of one that is like it in how positions
 * read each other, and has experts or not. False: reported. */
bool grow_blocks(Growing *g);
/* After pairing: finds parameters that make added blocks pass on what they read, sets zero[id] for
 * their nodes, and checks that the others read what they did. False: reported. */
bool grow_identity(Growing *g, bool *zero);

#endif
