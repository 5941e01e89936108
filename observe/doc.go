// Package observe listens to what the core announces and turns it into logs.
// Nothing that works depends on how it is watched: the core knows no logger.
package observe
