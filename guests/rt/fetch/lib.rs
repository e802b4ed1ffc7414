// SPDX-License-Identifier: MIT OR Apache-2.0
//! Empty on purpose: cargo wants a target before it fetches dependencies.
