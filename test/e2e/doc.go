// Package e2e tests Sluice as a process on a node, from Services in a real API server to real
// connections. See README.md for how to run one test and where its logs are, and package harness for
// the network it runs in.
package e2e
