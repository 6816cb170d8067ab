#!/usr/bin/env bash
# Provide the programs that tests use beyond Go. As root on a system with apt-get they
# are installed; otherwise this says what will be skipped without them. With CI=true in
# the environment a program that stays missing is an error.
# usage: deps.sh             provide everything
#        deps.sh have NAME   exit 0 if NAME is usable, without installing anything
set -euo pipefail

# name | Debian packages | what is skipped without it
table='
cc     | gcc libc6-dev | the race detector, so tests run without it
tshark | tshark        | decoding of our captures by a second implementation
ibv_devices | ibverbs-utils ibverbs-providers rdma-core | the example programs of libibverbs against the daemon
ib_send_bw  | perftest         | perftest against the daemon
ibstat      | infiniband-diags | tools that show the device
ucx_perftest | ucx-utils       | UCX against the daemon
fi_pingpong | libfabric-bin    | libfabric against the daemon
mpi4py      | openmpi-bin python3-mpi4py | MPI programs against the daemon
verbs.h     | libibverbs-dev   | our own C programs against the daemon
rping       | rdmacm-utils     | the example programs of librdmacm against the daemon
rdma_cma.h  | librdmacm-dev librpma-dev | our own C programs of librdmacm and librpma against the daemon
qperf       | qperf            | qperf over librdmacm against the daemon
fio         | fio              | the RDMA engine of fio against the daemon
qemu-system-x86_64 | qemu-system-x86 | interoperation with Linux soft-RoCE
busybox     | busybox-static   | interoperation with Linux soft-RoCE
ip          | iproute2         | interoperation with Linux soft-RoCE, nodes on network devices and in namespaces
nsenter     | util-linux       | nodes in namespaces without root
xz          | xz-utils         | interoperation with Linux soft-RoCE
pyverbs     | python3-pyverbs ibverbs-providers iproute2 | the tests of the Python bindings of rdma-core against the daemon
'

have() {
	case $1 in
	# A compiler without the C library's headers cannot link the race detector.
	cc) echo 'int main(void) { return 0; }' | "$(go env CC)" -x c -include stdlib.h - -o /dev/null 2>/dev/null ;;
	mpi4py) command -v mpirun >/dev/null && /usr/bin/python3 -c 'import mpi4py' 2>/dev/null ;;
	verbs.h) [ -e /usr/include/infiniband/verbs.h ] ;;
	rdma_cma.h) [ -e /usr/include/rdma/rdma_cma.h ] && [ -e /usr/include/librpma.h ] ;;
	# The tests are documentation, which container images leave out.
	pyverbs) [ -e /usr/share/doc/rdma-core/tests/run_tests.py ] && /usr/bin/python3 -c 'import pyverbs.device' 2>/dev/null && command -v ip >/dev/null ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

if [ "${1:-}" = have ]; then
	have "$2"
	exit
fi

trim() { sed 's/^ *//; s/ *$//' <<<"$1"; }

missing() { # prints the rows of the table whose program is missing
	while IFS= read -r row; do
		[ -z "$row" ] || have "$(trim "${row%%|*}")" || echo "$row"
	done <<<"$table"
}

wanted=$(missing)
if [ -n "$wanted" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
	packages=$(cut -d'|' -f2 <<<"$wanted" | xargs)
	echo "installing: $packages"
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	# shellcheck disable=SC2086 # a list of packages
	if ! { apt-get -o Acquire::Retries=3 update &&
		apt-get -o Acquire::Retries=3 -o 'Dpkg::Options::=--path-include=/usr/share/doc/rdma-core/*' \
			install -y --reinstall --no-install-recommends $packages; } </dev/null >"$log" 2>&1; then
		echo "apt-get failed; its last lines:"
		tail -n 15 "$log"
	fi
	rm -f "$log"
	wanted=$(missing)
fi

if [ -z "$wanted" ]; then
	echo "every program that the tests use is here"
	exit 0
fi
while IFS='|' read -r name packages purpose; do
	echo "SKIP  without $(trim "$name"): $(trim "$purpose") (to have it: apt-get install $(trim "$packages"))"
done <<<"$wanted"
if [ "${CI:-}" = true ]; then
	echo "CI=true: nothing may be skipped for lack of a program"
	exit 1
fi
