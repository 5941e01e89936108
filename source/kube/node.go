package kube

import (
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

const nodes = "nodes"

// reducedNode is this node's Node on its way to the cache.
type reducedNode struct {
	name     string
	node     *service.NodeObject
	warnings []service.Warning
}

func reduceNode(object *corev1.Node) reducedNode {
	node, warnings := reduce.Node(object)
	return reducedNode{name: object.Name, node: node, warnings: warnings}
}

// nodeStore feeds this node's Node to the cache. When the Node is deleted the
// last one stays in use: pods still run here until someone stops them.
func (s *Source) nodeStore() *store[reducedNode] {
	set := func(item reducedNode) {
		s.cache.Warn("Node", item.name, item.warnings)
		if item.node != nil {
			s.cache.SetNode(item.node)
		}
	}
	return &store[reducedNode]{
		reduce: reduceAs(reduceNode),
		set:    set,
		remove: func(item reducedNode) { s.nodeGone(item.name) },
		replace: func(items []reducedNode) {
			for _, item := range items {
				set(item)
			}
			if len(items) == 0 {
				s.nodeGone(s.config.NodeName)
			}
		},
		heard: s.heard(nodes),
	}
}

func (s *Source) nodeGone(name string) {
	if s.cache.Node() == nil {
		s.log.Info("Node is not registered yet", zap.String("node", name))
		return
	}
	s.log.Warn("Node was deleted; its last state stays in use", zap.String("node", name))
}
