// Package manifest feeds a source.Cache from a directory of manifests: Service,
// EndpointSlice, Node and ServiceCIDR objects, and Lists of them, as YAML or JSON
// with any number of documents per file.
//
//	directory ─► scanner ─► parse ─► catalog ─► source.Cache
//	    └─ watch ─► debounce ─┘
//
// A person writes these files, so everything is checked as strictly as an API
// server would, and a bad file is rejected whole with one line that names file,
// line and field. Until it is repaired the last good state of that file stays in
// force. What an API server would allocate, ClusterIPs and node ports, has to be
// in the file.
//
// Removing a file removes exactly its objects. The directory itself going away
// removes nothing: that is the source being lost, not an instruction.
package manifest
