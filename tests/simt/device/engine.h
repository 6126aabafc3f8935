// What kernels running under the emulator call: one call for every access, barrier and shuffle, with its place in the
// text.
#pragma once

#include <cstdint>

namespace simt {

extern int thread;             // of the block
extern int rank;               // of the block in its cluster
extern unsigned block;         // of the grid
extern uint64_t errorPattern;  // chooses the side to which each approximate instruction errs

enum class Touch : int { ReadOnly, Once, Shared, Store };

void global(const void* at, int bytes, Touch touch, int site);
// The memory at an offset into the block's arena; a dummy where the access is out of bounds.
void* shared(int offset, int bytes, bool write, int site);
const void* remote(int offset, int bytes, int rank, int site);
void barrier(int site);
void clusterBarrier(int site);
uint64_t shuffle(uint64_t bits, int from, int site);  // the bits of lane `from` of the warp
void fence();
int ticket(int* counter, int workers, int site);
void latest(unsigned* at, unsigned value, int site);  // *at becomes the larger one, in one step

}  // namespace simt
