// Package sysctl sets what a node service proxy needs of the kernel as a whole,
// once, at the start: the size of the conntrack table and its timeouts, and how
// likely the process is to be killed when memory runs out.
//
// A value that is right already is not written, so that a process with fewer
// privileges can follow one that has set everything (--init-only). What is written is
// recorded first, so that a clean-up can put it back.
package sysctl
