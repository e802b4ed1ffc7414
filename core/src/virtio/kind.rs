// SPDX-License-Identifier: MIT OR Apache-2.0
//! What distinguishes the kinds of virtio devices.

use super::registers::*;
use spumone_config::packed::LinkKind;

/// The kind of a device, with what makes it this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A network card with this address (Virtio 1.2, section 5.1).
    Network {
        /// Its address.
        mac: [u8; 6],
        /// Whether it takes and gives frames of up to 64 KiB, with checksums that are still to be computed.
        offloads: bool,
    },
    /// A socket device (section 5.10).
    Socket {
        /// The context identifier of this guest.
        own: u32,
        /// That of the peer, the only one to which packets go.
        peer: u32,
    },
}

impl Kind {
    /// The device at this guest's end of a link; `None`: the link has no virtio devices.
    #[must_use]
    pub const fn of(link: &LinkKind) -> Option<Self> {
        match *link {
            LinkKind::Memory { .. } => None,
            LinkKind::Network { mac, offloads } => Some(Self::Network { mac, offloads }),
            LinkKind::Socket { own, peer } => Some(Self::Socket { own, peer }),
        }
    }

    pub(super) const fn device_id(self) -> u32 {
        match self {
            Self::Network { .. } => NETWORK,
            Self::Socket { .. } => SOCKET,
        }
    }

    /// What the device offers.
    pub(super) const fn features(self) -> u64 {
        VERSION_1
            | match self {
                Self::Network { offloads, .. } => {
                    NET_MAC
                        | NET_STATUS
                        | if offloads {
                            SENDS_LARGE | TAKES_LARGE
                        } else {
                            0
                        }
                }
                Self::Socket { .. } => SOCKET_STREAM | SOCKET_SEQPACKET,
            }
    }

    pub(super) const fn queues(self) -> usize {
        match self {
            Self::Network { .. } => 2,
            Self::Socket { .. } => 3,
        }
    }

    /// The first bytes of the configuration: `mac` and `status` (5.1.4), or `guest_cid` (5.10.4).
    pub(super) fn configuration(self, is_peer_up: bool) -> [u8; 8] {
        let mut bytes = [0; 8];
        match self {
            Self::Network { mac, .. } => {
                bytes[..6].copy_from_slice(&mac);
                bytes[6] = if is_peer_up { LINK_UP } else { 0 };
            }
            Self::Socket { own, .. } => bytes[..4].copy_from_slice(&own.to_le_bytes()),
        }
        bytes
    }
}
