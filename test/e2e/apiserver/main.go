package main

import (
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "github.com/sluice-proxy/sluice/internal/netns"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {}
