// SPDX-License-Identifier: Apache-2.0

// Package manifest feeds a source.Cache from a directory of manifests: Service,
// EndpointSlice, Node and ServiceCIDR objects, and Lists of them, as YAML or JSON
// with any number of documents per file.
//
//	directory ─► scanner ─► parse ─► contents ─► source.Cache
//	    └─ watch ─┘
//
// People write these files, so each value that would give other rules than the author expects is an error, as at an API
// server. What harms no rule, such as the form of names, is not checked. A bad file is rejected whole, with one line that
// names file, line and field, and the last good state of that file stays applied until it is repaired. If several files
// define an object, the one in the first file by name is applied, and the others are rejected. The files must contain
// what an API server would allocate: ClusterIPs and node ports.
//
// Removing a file removes exactly its objects. If the directory itself disappears, the
// source is lost and nothing is removed.
package manifest
