#include <pmix.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>

#include "base/error.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/waiting_clock.h"

namespace meshfuse {

namespace {

constexpr std::chrono::milliseconds kServerPoll{50};

void pmixCheck(pmix_status_t status, std::string_view call) {
  deviceCheck(status == PMIX_SUCCESS, "[host] {} failed: {}; check that the launcher still runs", call,
              PMIx_Error_string(status));
}

// The end of a fence whose waiter may have given up.
void fenceFinished(pmix_status_t status, void* data) {
  const std::unique_ptr<std::promise<pmix_status_t>> finished(static_cast<std::promise<pmix_status_t>*>(data));
  finished->set_value(status);
}

std::atomic<bool> serverHasEnded = false;

// Its last message may come in a thread of the library at any time.
void serverEnded(size_t, pmix_status_t, const pmix_proc_t*, pmix_info_t*, size_t, pmix_info_t*, size_t,
                 pmix_event_notification_cbfunc_fn_t done, void* data) {
  serverHasEnded = true;
  if (done != nullptr) {
    done(PMIX_EVENT_ACTION_COMPLETE, nullptr, 0, nullptr, nullptr, data);
  }
}

// The connection of the process to the launcher's server. It stays open until the process ends: the server treats a finalized client as
// gone, and fences of the others then fail.
class PmixSession {
 public:
  static PmixSession& get() {
    static PmixSession session;
    return session;
  }
  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;

  const pmix_proc_t& self() const { return self_; }
  int64_t size() const { return size_; }
  // PMIx keeps values for the life of the job, so every gathering of the process has a key of its own.
  std::string nextKey() { return fmt::format("meshfuse.{}", gatherings_++); }

 private:
  PmixSession() {
    pmixCheck(PMIx_Init(&self_, nullptr, 0), "PMIx_Init");
    pmix_proc_t job;
    PMIX_LOAD_PROCID(&job, self_.nspace, PMIX_RANK_WILDCARD);
    pmix_value_t* value = nullptr;
    pmixCheck(PMIx_Get(&job, PMIX_JOB_SIZE, nullptr, 0, &value), "PMIx_Get of the job size");
    size_ = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    pmix_status_t lost[] = {PMIX_ERR_LOST_CONNECTION};
    PMIx_Register_event_handler(lost, std::size(lost), nullptr, 0, serverEnded, nullptr, nullptr);
  }
  ~PmixSession() { PMIx_Finalize(nullptr, 0); }

  pmix_proc_t self_{};
  int64_t size_ = 1;
  std::atomic<int64_t> gatherings_ = 0;
};

class PmixBootstrap final : public Bootstrap {
 public:
  explicit PmixBootstrap(std::chrono::milliseconds deadline) : session_(PmixSession::get()), deadline_(deadline) {}

  int64_t rank() const override { return session_.self().rank; }
  int64_t size() const override { return session_.size(); }

  std::vector<std::string> allGather(std::string_view mine) override {
    const std::string key = session_.nextKey();
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = const_cast<char*>(mine.data());
    value.data.bo.size = mine.size();
    pmixCheck(PMIx_Put(PMIX_GLOBAL, key.c_str(), &value), "PMIx_Put");
    pmixCheck(PMIx_Commit(), "PMIx_Commit");
    fence();
    std::vector<std::string> all(size());
    for (int64_t r = 0; r < size(); ++r) {
      pmix_proc_t peer;
      PMIX_LOAD_PROCID(&peer, session_.self().nspace, static_cast<pmix_rank_t>(r));
      pmix_value_t* theirs = nullptr;
      pmixCheck(PMIx_Get(&peer, key.c_str(), nullptr, 0, &theirs), "PMIx_Get");
      all[r].assign(theirs->data.bo.bytes, theirs->data.bo.size);
      PMIX_VALUE_RELEASE(theirs);
    }
    return all;
  }

 private:
  void fence() {
    pmix_info_t info;
    bool collect = true;
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    auto finished = std::make_unique<std::promise<pmix_status_t>>();
    std::future<pmix_status_t> end = finished->get_future();
    const pmix_status_t status = PMIx_Fence_nb(nullptr, 0, &info, 1, fenceFinished, finished.get());
    if (status == PMIX_OPERATION_SUCCEEDED) {
      return;
    }
    pmixCheck(status, "PMIx_Fence_nb");
    finished.release();  // the callback owns it now
    const auto limit = WaitingClock::now() + deadline_;
    while (end.wait_for(kServerPoll) != std::future_status::ready) {
      deviceCheck(!serverHasEnded, "[host] {}", kLauncherEnded);
      deviceCheck(WaitingClock::now() < limit, "[host] rank {} of {}: not all ranks opened their world within {} ms",
                  rank(), size(), deadline_.count());
    }
    pmixCheck(end.get(), "PMIx_Fence_nb");
  }

  PmixSession& session_;
  std::chrono::milliseconds deadline_;
};

}  // namespace

bool pmixOffered() { return std::getenv("PMIX_RANK") != nullptr && std::getenv("PMIX_NAMESPACE") != nullptr; }

RankOfLauncher pmixPlace() {
  const PmixSession& session = PmixSession::get();
  return {session.self().rank, session.size()};
}

bool launcherHasEnded() { return serverHasEnded; }

std::unique_ptr<Bootstrap> connectPmix(std::chrono::milliseconds deadline) {
  return std::make_unique<PmixBootstrap>(deadline);
}

}  // namespace meshfuse
