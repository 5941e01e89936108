// Package ui tests the page of the metrics address in a real browser, Debian's Chromium without a
// window, against the real program in network and process namespaces of the test. It is a module
// of its own, because the library that drives the browser is no part of the product.
//
//	make test-ui
//
// With SLUICE_UI_IMAGES it writes the screenshots of docs/web-ui.md to that directory.
package ui
