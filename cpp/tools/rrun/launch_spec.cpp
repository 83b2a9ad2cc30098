#include "launch_spec.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string_view>

#include <unistd.h>

#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::rrun {

namespace {

constexpr std::size_t longest_text = std::size_t{1} << 20;
constexpr std::size_t largest_spec = std::size_t{64} << 20;
constexpr std::uint32_t magic = 0x4452'5252;  // "RRRD"

void write_texts(ByteWriter& writer, std::vector<std::string> const& texts) {
    writer.integer(static_cast<std::uint32_t>(texts.size()));
    for (auto const& text : texts) {
        writer.text(text, longest_text);
    }
}

std::vector<std::string> read_texts(ByteReader& reader) {
    std::vector<std::string> texts;
    auto const count = reader.integer<std::uint32_t>();
    for (std::uint32_t i = 0; i < count; ++i) {
        texts.push_back(reader.text(longest_text));
    }
    return texts;
}

bootstrap::Bytes read_exactly(int fd, std::size_t size) {
    // Grows with what comes: a size is only what the sender claims.
    constexpr std::size_t step = std::size_t{64} << 10;
    bootstrap::Bytes bytes;
    while (bytes.size() < size) {
        auto const done = bytes.size();
        bytes.resize(done + std::min(step, size - done));
        auto const got = ::read(fd, bytes.data() + done, bytes.size() - done);
        if (got < 0 && errno == EINTR) {
            bytes.resize(done);
            continue;
        }
        if (got <= 0) {
            throw std::runtime_error{"the rrun that started this one is gone"};
        }
        bytes.resize(done + static_cast<std::size_t>(got));
    }
    return bytes;
}

}  // namespace

bootstrap::Bytes LaunchSpec::encode() const {
    ByteWriter body;
    write_texts(body, {address, token, directory});
    body.integer(node_rank).integer(nnodes).integer(seats.first).integer(seats.count).integer(seats.on_host);
    write_texts(body, environment);
    write_texts(body, variables);
    write_texts(body, arguments);
    auto const bytes = body.take();
    return ByteWriter{}.integer(magic).blob(bytes).take();
}

LaunchSpec LaunchSpec::read_from(int fd) {
    auto const head = read_exactly(fd, 2 * sizeof(std::uint32_t));
    ByteReader header{head};
    auto const found = header.integer<std::uint32_t>();
    auto const size = header.integer<std::uint32_t>();
    RAPIDSMPF_EXPECTS(
        found == magic && size <= largest_spec,
        "what came on standard input is no launch specification of an rrun of this version", FormatError);
    auto const body = read_exactly(fd, size);
    ByteReader reader{body};
    LaunchSpec spec;
    auto const texts = read_texts(reader);
    RAPIDSMPF_EXPECTS(texts.size() == 3, "the launch specification has not three texts", FormatError);
    spec.address = texts[0];
    spec.token = texts[1];
    spec.directory = texts[2];
    spec.node_rank = reader.integer<std::int32_t>();
    spec.nnodes = reader.integer<std::int32_t>();
    spec.seats.first = reader.integer<std::int32_t>();
    spec.seats.count = reader.integer<std::int32_t>();
    spec.seats.on_host = reader.integer<std::int32_t>();
    spec.environment = read_texts(reader);
    spec.variables = read_texts(reader);
    spec.arguments = read_texts(reader);
    reader.end();
    return spec;
}

std::vector<std::string> environment_for_other_hosts() {
    constexpr std::array<std::string_view, 14> prefixes{
        "PATH=", "LD_LIBRARY_PATH=", "VIRTUAL_ENV=", "CONDA_PREFIX=", "LANG=",   "PYTHON",  "RAPIDSMPF_",
        "UCX_",  "CUDF_POLARS_",     "POLARS_",      "OMP_",          "KVIKIO_", "LIBCUDF", "NCCL_"};
    std::vector<std::string> chosen;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        std::string_view const text{*entry};
        if (std::any_of(
                prefixes.begin(), prefixes.end(), [&](auto prefix) { return text.starts_with(prefix); })) {
            chosen.emplace_back(text);
        }
    }
    return chosen;
}

}  // namespace rapidsmpf::rrun
