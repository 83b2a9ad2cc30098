#include <rapidsmpf/bootstrap/detail/pmix.hpp>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include <dlfcn.h>

namespace rapidsmpf::bootstrap {

namespace {

// PMIx's types, by the layout that its standard fixes (versions 2 to 5).
struct Process {
    std::array<char, 256> name_space;
    std::uint32_t rank;
};
struct Value {
    std::uint16_t type;
    union {
        char* text;
        std::uint32_t number;
        std::array<std::byte, 32> room;  // the largest member has 24 bytes
    } data;
};
constexpr std::uint16_t type_text = 3;
constexpr std::uint16_t type_uint16 = 13;
constexpr std::uint16_t type_uint32 = 14;
constexpr std::uint8_t scope_global = 3;
constexpr std::uint32_t any_rank = std::numeric_limits<std::uint32_t>::max() - 1;
constexpr int success = 0;

}  // namespace

struct PmixSession::Library {
    Library() = default;
    ~Library() {
        if (connected) {
            finalize(nullptr, 0);
        }
        // It leaves threads behind that still run its code: the library stays loaded.
    }
    Library(Library const&) = delete;
    Library& operator=(Library const&) = delete;

    template <typename Function>
    bool find(Function*& function, char const* name) const {
        function = reinterpret_cast<Function*>(::dlsym(handle, name));
        return function != nullptr;
    }
    bool load() {
        handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
        return handle != nullptr && find(init, "PMIx_Init") && find(finalize, "PMIx_Finalize")
               && find(put, "PMIx_Put") && find(commit, "PMIx_Commit") && find(fence, "PMIx_Fence")
               && find(get, "PMIx_Get");
    }
    // A number that the manager knows of the job or of this process; -1 when it does not.
    [[nodiscard]] std::int32_t number(char const* key, std::uint32_t rank) const {
        Process of = self;
        of.rank = rank;
        Value* value = nullptr;
        if (get(&of, key, nullptr, 0, &value) != success || value == nullptr) {
            return -1;
        }
        std::int32_t result = -1;
        if (value->type == type_uint32) {
            result = static_cast<std::int32_t>(value->data.number);
        } else if (value->type == type_uint16) {
            std::uint16_t small = 0;
            std::memcpy(&small, &value->data, sizeof(small));
            result = small;
        }
        std::free(value);  // PMIx allocates it so
        return result;
    }

    void* handle{nullptr};
    bool connected{false};
    Process self{};
    std::int32_t nranks{0};
    int (*init)(Process*, void*, std::size_t){nullptr};
    int (*finalize)(void const*, std::size_t){nullptr};
    int (*put)(std::uint8_t, char const*, Value*){nullptr};
    int (*commit)(){nullptr};
    int (*fence)(Process const*, std::size_t, void const*, std::size_t){nullptr};
    int (*get)(Process const*, char const*, void const*, std::size_t, Value**){nullptr};
};

PmixSession::PmixSession(std::unique_ptr<Library> library) : library_{std::move(library)} {}
PmixSession::~PmixSession() = default;

std::unique_ptr<PmixSession> PmixSession::open() {
    if (std::getenv("PMIX_RANK") == nullptr) {
        return nullptr;
    }
    auto library = std::make_unique<Library>();
    if (!library->load()) {
        return nullptr;
    }
    if (int const error = library->init(&library->self, nullptr, 0); error != success) {
        throw std::runtime_error{
            "the process manager does not answer (PMIx_Init gave " + std::to_string(error)
            + "): start the program by srun or mpirun, or unset PMIX_RANK"};
    }
    library->connected = true;
    library->nranks = library->number("pmix.job.size", any_rank);
    if (library->nranks < 1) {
        throw std::runtime_error{"the process manager does not say how many processes there are (PMIx)"};
    }
    return std::unique_ptr<PmixSession>{new PmixSession{std::move(library)}};
}

std::int32_t PmixSession::rank() const noexcept {
    return static_cast<std::int32_t>(library_->self.rank);
}

std::int32_t PmixSession::nranks() const noexcept {
    return library_->nranks;
}

std::int32_t PmixSession::local_rank() const noexcept {
    return library_->number("pmix.lrank", library_->self.rank);
}

std::int32_t PmixSession::local_nranks() const noexcept {
    return library_->number("pmix.local.size", any_rank);
}

std::string PmixSession::broadcast(std::string const& key, std::string const& value_of_rank_zero) {
    auto const expect = [&](int status, char const* what) {
        if (status != success) {
            throw std::runtime_error{
                "the processes cannot find each other by PMIx: " + std::string{what} + " gave "
                + std::to_string(status)};
        }
    };
    if (rank() == 0) {
        auto text = value_of_rank_zero;
        Value value{};
        value.type = type_text;
        value.data.text = text.data();
        expect(library_->put(scope_global, key.c_str(), &value), "PMIx_Put");
        expect(library_->commit(), "PMIx_Commit");
    }
    expect(library_->fence(nullptr, 0, nullptr, 0), "PMIx_Fence");
    if (rank() == 0) {
        return value_of_rank_zero;
    }
    Process zero = library_->self;
    zero.rank = 0;
    Value* value = nullptr;
    expect(library_->get(&zero, key.c_str(), nullptr, 0, &value), "PMIx_Get");
    if (value == nullptr || value->type != type_text || value->data.text == nullptr) {
        throw std::runtime_error{"the processes cannot find each other by PMIx: the value is no text"};
    }
    std::string const text{value->data.text};
    std::free(value->data.text);
    std::free(value);
    return text;
}

}  // namespace rapidsmpf::bootstrap
