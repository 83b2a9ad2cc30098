#include "rendezvous_file.hpp"

#include <cerrno>
#include <exception>
#include <fstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::rrun {

namespace {

constexpr char const* file_name = "coordinator";

}  // namespace

RendezvousFile::RendezvousFile(std::filesystem::path folder, Rendezvous const& rendezvous, Cleanup cleanup)
    : file_{std::move(folder) / file_name}, cleanup_{cleanup} {
    auto const parent = file_.parent_path();
    if (::mkdir(parent.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
        throw SystemError{"cannot make the folder " + parent.string(), errno};
    }
    // A reader finds all of it or nothing.
    auto const unfinished = file_.string() + "." + std::to_string(::getpid());
    FileDescriptor const out{
        ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR)};
    auto const text = rendezvous.address.str() + "\n" + rendezvous.token.hex() + "\n";
    if (!out.is_open() || ::write(out.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())
        || ::rename(unfinished.c_str(), file_.c_str()) != 0) {
        int const error = errno;
        ::unlink(unfinished.c_str());
        throw SystemError{"cannot write " + file_.string(), error};
    }
}

RendezvousFile::~RendezvousFile() {
    if (cleanup_ == Cleanup::yes) {
        ::unlink(file_.c_str());
        ::rmdir(file_.parent_path().c_str());  // only when nothing else is in it
    }
}

std::optional<Rendezvous> read_rendezvous(std::filesystem::path const& folder) {
    std::ifstream file{folder / file_name};
    std::string address;
    std::string token;
    if (!(file >> address >> token)) {
        return std::nullopt;
    }
    try {
        return Rendezvous{bootstrap::SocketAddress::parse(address), Token::from_hex(token)};
    } catch (std::exception const&) {
        return std::nullopt;
    }
}

}  // namespace rapidsmpf::rrun
