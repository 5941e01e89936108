// Package dispatch folds dispatch elements, one rule each, into iptables chains
// that form a tree, so that a first packet passes tens of rules whatever the
// number of Services, and a change rewrites one leaf.
//
//	KUBE-SERVICES            root: head rules, jumps by prefix, tail rules
//	  ├─ 172.30.0.0/24 ──► KUBE-SVC-TS-AC1E0000-24        inner chain: jumps
//	  │                      ├─ 172.30.0.0/27 ──► …-27    leaf: at most LeafMax elements
//	  │                      └─ 172.30.0.32/27 ──► …
//	  └─ 172.30.1.0/24 ──► …
//
// The elements of a container, ordered by key, form a binary trie over the bits
// of their keys, in which only bits that tell elements apart have a node. Each
// subtree has a rank, which depends on its number of elements alone: rank 0 up to
// LeafMax, and one more for each factor of fanout. A subtree whose rank is lower
// than that of the subtree around it becomes a chain of its own; a chain of rank
// 0 holds its elements, any other holds jumps to the chains of lower rank just
// below. Three goals shaped this:
//
//  1. The chains are a function of the set of elements, never of the order in
//     which they came: a restart composes byte for byte what its predecessor did.
//  2. Every level divides the number of elements by the fanout, so the depth is
//     bounded by the logarithm of that number, even for addresses chosen by an
//     enemy. The nft variant allows 16 nested chains (NFT_JUMP_STACK_SIZE, Linux
//     6.18); windows of fixed bits would need up to 38 of them for IPv6.
//  3. A change touches the chains on one path from the root, and mostly changes
//     the text of the leaf alone: a jump matches the prefix just below the bit
//     at which its subtree parts from its sibling, not the longest prefix that
//     its elements share.
//
// The package is pure bookkeeping: it does not lock, and one goroutine calls it.
package dispatch
