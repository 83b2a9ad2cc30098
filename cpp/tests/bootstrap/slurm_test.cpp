// What Slurm's variables mean.
#include <rapidsmpf/bootstrap/detail/slurm.hpp>

#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::bootstrap {
namespace {

// Slurm's variables are these and no others, while it lives.
class SlurmVariables {
  public:
    explicit SlurmVariables(std::map<std::string, std::string> const& values) {
        for (auto const* const name :
             {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
              "SLURM_NODEID", "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_NODELIST",
              "SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID",
              "SLURM_STEPID", "RRUN_TOKEN"}) {
            auto const* const value = std::getenv(name);
            before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>{value};
            ::unsetenv(name);
        }
        for (auto const& [name, value] : values) {
            ::setenv(name.c_str(), value.c_str(), 1);
        }
    }
    ~SlurmVariables() {
        for (auto const& [name, value] : before_) {
            value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
        }
    }
    SlurmVariables(SlurmVariables const&) = delete;
    SlurmVariables& operator=(SlurmVariables const&) = delete;

  private:
    std::map<std::string, std::optional<std::string>> before_;
};

TEST(Slurm, FirstOfAListOfHosts) {
    for (auto const& [list, first] : std::map<std::string, std::string>{
             {"node7", "node7"},
             {"node7,node8", "node7"},
             {"node[007-012,20],login1", "node007"},
             {"node[3,9]", "node3"},
             {"node[12]", "node12"},
             {"login1,node[1-2]", "login1"},
             {"rack[2-3]-ib,x", "rack2-ib"},
             {"node[", "node"},
             {"", ""}}) {
        EXPECT_EQ(first_of_hosts(list), first) << list;
    }
}

TEST(Slurm, TasksOfEachHost) {
    EXPECT_EQ(tasks_of_host("4", 0), 4);
    EXPECT_EQ(tasks_of_host("2(x3),1", 0), 2);
    EXPECT_EQ(tasks_of_host("2(x3),1", 2), 2);
    EXPECT_EQ(tasks_of_host("2(x3),1", 3), 1);
    EXPECT_EQ(tasks_of_host("2(x3),1", 9), 1) << "it does not say";
    EXPECT_EQ(tasks_of_host("", 0), 1);
}

TEST(Slurm, NoTaskNoStep) {
    SlurmVariables const none{{{"SLURM_JOB_ID", "5"}}};
    EXPECT_FALSE(SlurmStep::from_environment());
}

TEST(Slurm, TaskKnowsItsPlace) {
    SlurmVariables const task{
        {{"SLURM_PROCID", "5"},
         {"SLURM_NTASKS", "8"},
         {"SLURM_LOCALID", "1"},
         {"SLURM_NODEID", "1"},
         {"SLURM_TASKS_PER_NODE", "4,2(x2)"},
         {"SLURM_JOB_NODELIST", "gpu[01-03]"},
         {"SLURM_JOB_ID", "123456"},
         {"SLURM_STEP_ID", "2"}}};
    auto const step = SlurmStep::from_environment();
    ASSERT_TRUE(step);
    EXPECT_EQ(step->task, 5);
    EXPECT_EQ(step->tasks, 8);
    EXPECT_EQ(step->local_task, 1);
    EXPECT_EQ(step->tasks_on_host, 2);
    EXPECT_EQ(step->first_host, "gpu01");
    EXPECT_GE(step->port, 20'000);
    EXPECT_LT(step->port, 32'000);
    // Two steps of a job at once do not take the same.
    ::setenv("SLURM_STEP_ID", "3", 1);
    EXPECT_NE(SlurmStep::from_environment()->port, step->port);
}

TEST(Slurm, ContradictionsAreToldNotTaken) {
    SlurmVariables const task{{{"SLURM_PROCID", "8"}, {"SLURM_NTASKS", "8"}}};
    EXPECT_THROW(static_cast<void>(SlurmStep::from_environment()), std::runtime_error);
}

TEST(Slurm, TokenComesFromTheEnvironment) {
    auto const token = Token::random();
    {
        SlurmVariables const none{{}};
        EXPECT_FALSE(find_token(""));
        EXPECT_THROW(static_cast<void>(find_token("/no/such/file")), std::runtime_error);
    }
    SlurmVariables const given{{{"RRUN_TOKEN", token.hex()}}};
    ASSERT_TRUE(find_token(""));
    EXPECT_TRUE(find_token("")->matches(token));
    ::setenv("RRUN_TOKEN", "short", 1);
    EXPECT_THROW(static_cast<void>(find_token("")), FormatError);
}

}  // namespace
}  // namespace rapidsmpf::bootstrap
