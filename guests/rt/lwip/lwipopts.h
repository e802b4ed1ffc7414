/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How lwIP is built here: IPv4, ARP, ICMP and TCP, by callbacks in one task, with static memory only. lwIP's sources are
 * unchanged.
 */
#ifndef LWIPOPTS_H
#define LWIPOPTS_H

/* One task calls all of lwIP, so nothing is locked. */
#define NO_SYS 1
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0

/* Protocols. A datagram is one frame: there are no fragments. */
#define LWIP_IPV4 1
#define LWIP_IPV6 0
#define LWIP_ARP 1
#define LWIP_ICMP 1
#define LWIP_TCP 1
#define LWIP_UDP 0
#define LWIP_RAW 0
#define IP_REASSEMBLY 0
#define IP_FRAG 0
#define ARP_TABLE_SIZE 8
#define LWIP_SINGLE_NETIF 1
#define LWIP_STATS 0

/* Received frames stay in the card's buffers until they are read; TCP drops what comes out of order, so that it keeps none. */
#define LWIP_SUPPORT_CUSTOM_PBUF 1
#define TCP_QUEUE_OOSEQ 0
#define PBUF_POOL_SIZE 0
/* lwIP would check that the window fits into its own pool of buffers, which is not used. */
#define LWIP_DISABLE_TCP_SANITY_CHECKS 1

/* TCP. */
#define TCP_MSS 1460
#define TCP_WND (8 * TCP_MSS)
#define TCP_SND_BUF (8 * TCP_MSS)
#define TCP_SND_QUEUELEN 32
#define TCP_LISTEN_BACKLOG 1
#define LWIP_CALLBACK_API 1

/* Memory: the heap has headers and small copies, the pools all else. */
#define MEM_ALIGNMENT 8
#define MEM_SIZE 16384
#define MEMP_NUM_TCP_PCB 12
#define MEMP_NUM_TCP_PCB_LISTEN 2
#define MEMP_NUM_TCP_SEG 128
#define MEMP_NUM_PBUF 128

/* Sums of 32 bits at a time. */
#define LWIP_CHKSUM_ALGORITHM 3

#endif
