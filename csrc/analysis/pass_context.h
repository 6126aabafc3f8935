// PassContext: the analyses of one fusion, made when asked for and dropped when a pass changes the fusion.
//
//   const ExactIds& ids = context.get<ExactIds>();
//
// An analysis is a type with `static constexpr std::string_view kName` and a constructor from const Fusion&. A reference lasts
// until a pass that does not keep the analysis has changed the fusion; a pass that changes the fusion and then asks for the analysis again
// calls changed() itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/pass_settings.h"
#include "base/ranges.h"

namespace meshfuse {

class Fusion;

class PassContext {
 public:
  explicit PassContext(const Fusion& fusion, PassSettings settings = {}) : fusion_(fusion), settings_(settings) {}
  PassContext(const PassContext&) = delete;
  PassContext& operator=(const PassContext&) = delete;

  template <class Analysis>
  const Analysis& get() {
    return valueIn<Analysis>(analyses_, fusion_);
  }

  // The fusion has changed: all analyses but these are dropped.
  void changed(std::span<const std::string_view> keeps = {}) {
    std::erase_if(analyses_, [&](const auto& entry) { return !contains(keeps, entry.first); });
  }

  // Data that passes keep for later passes; a change of the fusion does not drop it. The type has kName and a default constructor.
  template <class Memo>
  Memo& memo() {
    return valueIn<Memo>(memos_);
  }

  const PassSettings& settings() const { return settings_; }

  // A decision of a pass with its reason, for explain.
  void remark(std::string text) { remarks_.push_back(std::move(text)); }
  const std::vector<std::string>& remarks() const { return remarks_; }
  // The reason for a tensor's sharding, by id of the tensor.
  void because(int64_t tensor, std::string reason) { reasons_[tensor] = std::move(reason); }
  const std::map<int64_t, std::string>& reasons() const { return reasons_; }

 private:
  struct Held {
    virtual ~Held() = default;
  };
  template <class T>
  struct HeldOf : Held {
    template <class... Args>
    explicit HeldOf(const Args&... args) : value(args...) {}
    T value;
  };
  using ByName = std::map<std::string_view, std::unique_ptr<Held>>;

  // The value of this type, made of `args` if there is none yet.
  template <class T, class... Args>
  static T& valueIn(ByName& all, const Args&... args) {
    std::unique_ptr<Held>& held = all[T::kName];
    if (held == nullptr) {
      held = std::make_unique<HeldOf<T>>(args...);
    }
    return static_cast<HeldOf<T>&>(*held).value;
  }

  const Fusion& fusion_;
  const PassSettings settings_;
  ByName analyses_;
  ByName memos_;
  std::vector<std::string> remarks_;
  std::map<int64_t, std::string> reasons_;
};

}  // namespace meshfuse
