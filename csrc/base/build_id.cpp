#include "base/build_id.h"

#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "base/rounding.h"

namespace meshfuse {

namespace {

// The identifier in a segment of notes: header, name and description of each, both padded to 4 bytes.
std::string idIn(std::span<const char> notes) {
  constexpr std::string_view kOwner{"GNU\0", 4};
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof header);
    notes = notes.subspan(sizeof header);
    const uint64_t name = roundUp<uint64_t>(header.n_namesz, 4);
    const uint64_t end = name + roundUp<uint64_t>(header.n_descsz, 4);
    if (end > notes.size()) {
      break;
    }
    if (header.n_type == NT_GNU_BUILD_ID && std::string_view(notes.data(), header.n_namesz) == kOwner) {
      std::string text;
      for (const char byte : notes.subspan(name, header.n_descsz)) {
        text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
      }
      return text;
    }
    notes = notes.subspan(end);
  }
  return {};
}

// 1 once the binary with this code is found.
int visit(dl_phdr_info* binary, size_t, void* result) {
  const std::span segments(binary->dlpi_phdr, binary->dlpi_phnum);
  const auto own = reinterpret_cast<uintptr_t>(&visit) - binary->dlpi_addr;
  bool isOwn = false;
  for (const ElfW(Phdr) & s : segments) {
    isOwn = isOwn || (s.p_type == PT_LOAD && own >= s.p_vaddr && own - s.p_vaddr < s.p_memsz);
  }
  for (const ElfW(Phdr) & s : segments) {
    std::string& id = *static_cast<std::string*>(result);
    if (isOwn && s.p_type == PT_NOTE && id.empty()) {
      id = idIn({reinterpret_cast<const char*>(binary->dlpi_addr + s.p_vaddr), s.p_memsz});
    }
  }
  return isOwn ? 1 : 0;
}

}  // namespace

const std::string& buildId() {
  static const std::string id = [] {
    std::string found;
    dl_iterate_phdr(visit, &found);
    return found;
  }();
  return id;
}

}  // namespace meshfuse
