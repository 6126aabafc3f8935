// The kernels of the engine run without AddressSanitizer: every access is checked by name. blocks.cc tells the sanitizer of its stacks, so
// these functions must exist.
#include <cstddef>

extern "C" {
void __asan_unpoison_memory_region(const volatile void*, size_t) {}
void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
}
