# Sourced by the scripts that measure queries: where queries.sh puts the packages, what their programs link to, and the columns
# of lineitem that queries 1 and 6 read.
# shellcheck shell=bash disable=SC2034
env=/tmp/riverrun-env
libraries="$env/rapidsmpf/lib64:$env/libcudf/lib64:$env/librmm/lib64:$env/rapids_logger/lib64:$env/libkvikio/lib64"
libraries="$libraries:$env/nvidia/libnvcomp/lib64:$env/libucxx/lib64:$env/libucx/lib:/usr/local/cuda/lib64"
q6_columns=l_quantity,l_extendedprice,l_discount,l_shipdate
q1_columns=l_quantity,l_extendedprice,l_discount,l_tax,l_returnflag,l_linestatus,l_shipdate
