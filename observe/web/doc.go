// Package web serves the metrics address: metrics, the proxy's mode,
// configuration, flags and state, and what helps with debugging, over plain HTTP
// without authentication, at the paths and in the formats of kube-proxy v1.36.
//
// It knows nothing of the proxy. What it shows comes from handlers and functions in
// its [Config], which are asked anew for each request. What speaks of the node's
// health is served elsewhere: /healthz here only says that this server lives.
package web
