# SPDX-License-Identifier: MIT OR Apache-2.0
# A root file system on a disk that another guest serves (scenario `serve`), over NVMe/TCP. To be sourced.
#
# spumone.root=CARD,OWN,SERVER    the number of the network card (from 1), this guest's address on it as ADDRESS/BITS, and the
#                                 address of the guest that has the disk
. /lib/spumone/cards.sh

# The name of what is served, and of who asks for it, as the scenario `serve` has them.
NVME_NAME=nqn.2026-01.spumone:disk
NVME_HOST=nqn.2026-01.spumone:served
NVME_HOST_ID=5b0e0000-0000-4000-8000-000000000004

# attach_root CARD OWN SERVER attaches the disk and mounts it at /mnt. It waits as long as it takes: the other guest may start later.
attach_root() {
    local card other
    card=$(card "$1")
    [ -n "$card" ] || { echo "netroot: there is no network card $1"; return 1; }
    modprobe nvme-tcp
    ip addr add "$2" dev "$card"
    # All of them: while a card is down, its driver has no buffers, and the frames of the peer wait.
    for other in $(cards); do ip link set "$other" up; done
    # A driver tries again until the owner is back, without end (ctrl_loss_tmo), each second; it finds within 4 s that the owner
    # is gone (keep_alive_tmo). Requests wait meanwhile.
    until echo "transport=tcp,traddr=$3,trsvcid=4420,nqn=$NVME_NAME,hostnqn=$NVME_HOST,hostid=$NVME_HOST_ID,nr_io_queues=$(nproc),\
keep_alive_tmo=2,reconnect_delay=1,ctrl_loss_tmo=-1" 2> /dev/null > /dev/nvme-fabrics; do
        sleep 0.1
    done
    until [ -b /dev/nvme0n1 ]; do sleep 0.02; done
    mount -t ext4 /dev/nvme0n1 /mnt
}
