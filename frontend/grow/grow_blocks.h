/* Depth: what blocks are made of. */
#ifndef FRONTEND_GROW_GROW_BLOCKS_H
#define FRONTEND_GROW_GROW_BLOCKS_H

#include "frontend/grow/grow_pair.h"

/* Sets grown->block_of and block_added. False: reported. */
bool grow_blocks(Growing *g);
/* After pairing: finds parameters that make added blocks pass on what they read, and sets zero[id]
 * for their nodes. False: reported. */
bool grow_identity(Growing *g, bool *zero);

#endif
