// This machine's name, for messages to people.
#pragma once

#include <string>

namespace rapidsmpf {

// "localhost" when the system does not say.
[[nodiscard]] std::string host_name();

}  // namespace rapidsmpf
