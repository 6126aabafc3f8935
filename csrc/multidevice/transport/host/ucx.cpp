// UCX, loaded at run time: most programs stay on one host and do not need it, and it hooks memory functions when it is loaded.
#include <dlfcn.h>
#include <poll.h>
#include <ucp/api/ucp.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "multidevice/transport/host/network_link.h"

namespace meshfuse {

namespace {

void* openUcx() {
  // Set before loading, because the library reads them when it starts: its signal handlers would replace those of the program.
  setenv("UCX_ERROR_SIGNALS", "", 0);
  setenv("UCX_LOG_LEVEL", "error", 0);
  void* library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  deviceCheck(library != nullptr, "[network] ranks on several hosts need UCX: {}", library == nullptr ? dlerror() : "");
  return library;
}

// A function of a library; it converts to the type of its declaration.
struct Symbol {
  void* address;

  Symbol(void* library, const char* name) : address(dlsym(library, name)) {
    deviceCheck(address != nullptr, "[network] libucp.so.0 has no {}; UCX 1.13 or later is needed", name);
  }
  template <class Function>
  operator Function*() const {
    return reinterpret_cast<Function*>(address);
  }
};

struct UcxFunctions {
  void* ucx = openUcx();
  decltype(&ucp_config_read) configRead = Symbol(ucx, "ucp_config_read");
  decltype(&ucp_config_release) configRelease = Symbol(ucx, "ucp_config_release");
  decltype(&ucp_init_version) init = Symbol(ucx, "ucp_init_version");
  decltype(&ucp_cleanup) cleanup = Symbol(ucx, "ucp_cleanup");
  decltype(&ucp_worker_create) workerCreate = Symbol(ucx, "ucp_worker_create");
  decltype(&ucp_worker_destroy) workerDestroy = Symbol(ucx, "ucp_worker_destroy");
  decltype(&ucp_worker_get_address) workerGetAddress = Symbol(ucx, "ucp_worker_get_address");
  decltype(&ucp_worker_release_address) workerReleaseAddress = Symbol(ucx, "ucp_worker_release_address");
  decltype(&ucp_worker_progress) workerProgress = Symbol(ucx, "ucp_worker_progress");
  decltype(&ucp_worker_get_efd) workerGetEventDescriptor = Symbol(ucx, "ucp_worker_get_efd");
  decltype(&ucp_worker_arm) workerArm = Symbol(ucx, "ucp_worker_arm");
  decltype(&ucp_ep_create) endpointCreate = Symbol(ucx, "ucp_ep_create");
  decltype(&ucp_ep_close_nbx) endpointClose = Symbol(ucx, "ucp_ep_close_nbx");
  decltype(&ucp_tag_send_nbx) tagSend = Symbol(ucx, "ucp_tag_send_nbx");
  decltype(&ucp_tag_recv_nbx) tagReceive = Symbol(ucx, "ucp_tag_recv_nbx");
  decltype(&ucp_tag_recv_request_test) tagReceiveTest = Symbol(ucx, "ucp_tag_recv_request_test");
  decltype(&ucp_tag_probe_nb) tagProbe = Symbol(ucx, "ucp_tag_probe_nb");
  decltype(&ucp_request_check_status) requestStatus = Symbol(ucx, "ucp_request_check_status");
  decltype(&ucp_request_cancel) requestCancel = Symbol(ucx, "ucp_request_cancel");
  decltype(&ucp_request_free) requestFree = Symbol(ucx, "ucp_request_free");
  decltype(&ucs_status_string) statusString = Symbol(ucx, "ucs_status_string");
};

class UcxLink final : public NetworkLink {
 public:
  UcxLink() {
    ucp_config_t* config = nullptr;
    require(ucx_.configRead(nullptr, nullptr, &config), "ucp_config_read");
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    const ucs_status_t status = ucx_.init(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &context_);
    ucx_.configRelease(config);
    require(status, "ucp_init");
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    // After a failure, requests are in flight when close() destroys the worker. Without the flag, UCX describes each of them for a warning,
    // and the description of one that it made itself for a large message reads fields that are not set: a segmentation fault in UCX 1.13.
    worker.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
    require(ucx_.workerCreate(context_, &worker, &worker_), "ucp_worker_create");
    require(ucx_.workerGetEventDescriptor(worker_, &events_), "ucp_worker_get_efd");
  }
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;

  ~UcxLink() override { UcxLink::close(); }

  // A forced close: peers may have ended, and an orderly close would wait for them.
  void close() override {
    std::lock_guard lock(mutex_);
    for (ucp_ep_h endpoint : endpoints_) {
      ucp_request_param_t parameters{};
      parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
      void* closing = endpoint == nullptr ? nullptr : ucx_.endpointClose(endpoint, &parameters);
      for (int64_t i = 0; UCS_PTR_IS_PTR(closing) && i < 10'000 && ucx_.requestStatus(closing) == UCS_INPROGRESS; ++i) {
        ucx_.workerProgress(worker_);
      }
      if (UCS_PTR_IS_PTR(closing)) {
        ucx_.requestFree(closing);
      }
    }
    endpoints_.clear();
    if (worker_ != nullptr) {
      ucx_.workerDestroy(std::exchange(worker_, nullptr));
    }
    if (context_ != nullptr) {
      ucx_.cleanup(std::exchange(context_, nullptr));
    }
  }

  std::string address() const override {
    ucp_address_t* address = nullptr;
    size_t length = 0;
    require(ucx_.workerGetAddress(worker_, &address, &length), "ucp_worker_get_address");
    std::string text(reinterpret_cast<const char*>(address), length);
    ucx_.workerReleaseAddress(worker_, address);
    return text;
  }

  void connect(const std::vector<std::string>& addresses) override {
    for (const std::string& address : addresses) {
      ucp_ep_params_t parameters{};
      // With error handling, because UCX otherwise ends this process when a peer dies. UCX then does not use shared memory.
      parameters.field_mask =
          UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
      parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
      parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      parameters.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {
      };  // the watch detects it; sends end with an error
      ucp_ep_h endpoint = nullptr;
      require(ucx_.endpointCreate(worker_, &parameters, &endpoint), "ucp_ep_create");
      endpoints_.push_back(endpoint);
    }
  }

  Operation send(int64_t peer, const void* data, size_t bytes, uint64_t tag) override {
    std::lock_guard lock(mutex_);
    ucp_request_param_t parameters{};
    return worker_ == nullptr ? neverDone()
                              : started(ucx_.tagSend(endpoints_[peer], data, bytes, tag, &parameters), Message{});
  }

  Operation receive(void* data, size_t bytes, uint64_t tag) override {
    std::lock_guard lock(mutex_);
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;  // so that there is a request to ask for the length
    return worker_ == nullptr ? neverDone()
                              : started(ucx_.tagReceive(worker_, data, bytes, tag, ~uint64_t{0}, &parameters),
                                        Message{.receives = true});
  }

  std::optional<uint64_t> find(uint64_t tag, uint64_t mask) override {
    std::lock_guard lock(mutex_);
    ucp_tag_recv_info_t information{};
    constexpr int64_t kLeaveItThere = 0;
    return worker_ == nullptr || ucx_.tagProbe(worker_, tag, mask, kLeaveItThere, &information) == nullptr
               ? std::nullopt
               : std::optional<uint64_t>(information.sender_tag);
  }

  Outcome ask(Operation& operation) override {
    if (operation == nullptr) {
      return {.done = true};
    }
    std::lock_guard lock(mutex_);
    if (worker_ == nullptr) {
      return {};
    }
    auto* message = static_cast<Message*>(operation);
    ucp_tag_recv_info_t information{};
    const ucs_status_t status = message->request == nullptr ? message->failed
                                : message->receives         ? ucx_.tagReceiveTest(message->request, &information)
                                                            : ucx_.requestStatus(message->request);
    if (status == UCS_INPROGRESS) {
      return {};
    }
    const bool isComplete = status == UCS_OK;
    const bool tooLong = status == UCS_ERR_MESSAGE_TRUNCATED;
    const Outcome outcome{.done = true,
                          .tooLong = tooLong,
                          .bytes = message->receives && isComplete ? static_cast<int64_t>(information.length) : -1,
                          .error = isComplete || tooLong ? "" : ucx_.statusString(status)};
    if (message->request != nullptr) {
      ucx_.requestFree(message->request);
    }
    delete message;
    operation = nullptr;
    return outcome;
  }

  void abandon(Operation operation) override {
    std::lock_guard lock(mutex_);
    auto* message = static_cast<Message*>(operation);
    if (worker_ != nullptr && message != nullptr && message->request != nullptr) {
      ucx_.requestCancel(worker_, message->request);
      ucx_.requestFree(message->request);
    }
    delete message;
  }

  bool progress() override {
    std::lock_guard lock(mutex_);
    return worker_ != nullptr && ucx_.workerProgress(worker_) != 0;
  }

  void sleep(std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    if (worker_ == nullptr) {
      return;
    }
    const ucs_status_t status = ucx_.workerArm(worker_);
    if (status == UCS_ERR_BUSY) {
      return;  // an event arrived in the meantime
    }
    require(status, "ucp_worker_arm");
    lock.unlock();
    pollfd descriptor{events_, POLLIN, 0};
    poll(&descriptor, 1, limit.count());
  }

 private:
  struct Message {
    void* request = nullptr;
    bool receives = false;
    ucs_status_t failed = UCS_OK;
  };

  static Operation neverDone() { return new Message{.failed = UCS_INPROGRESS}; }
  static Operation started(ucs_status_ptr_t request, Message message) {
    if (request == nullptr) {
      return nullptr;
    }
    if (UCS_PTR_IS_ERR(request)) {  // handled like any other request, so that the error names its peer
      message.failed = UCS_PTR_STATUS(request);
    } else {
      message.request = request;
    }
    return new Message(message);
  }
  void require(ucs_status_t status, const char* call) const {
    deviceCheck(status == UCS_OK, "[network] {} failed: {}", call, status == UCS_OK ? "" : ucx_.statusString(status));
  }

  UcxFunctions ucx_;
  std::mutex mutex_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;  // null: closed
  int events_ = -1;
  std::vector<ucp_ep_h> endpoints_;
};

}  // namespace

std::unique_ptr<NetworkLink> openUcxLink() { return std::make_unique<UcxLink>(); }

}  // namespace meshfuse
