// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/harness"
)

// writers is how many requests are in flight when many objects are written.
const writers = 16

// apiServer is a real API server, with a client that may do everything.
type apiServer struct {
	*harness.APIServer
	client kubernetes.Interface

	// up is held for writing while the server starts again.
	up sync.RWMutex
}

func startAPIServer(binary string, host *netns.Namespace, dir string) (*apiServer, error) {
	s := &apiServer{APIServer: harness.NewAPIServer(binary, host, apiAddress, dir, dir)}
	if err := s.Start(); err != nil {
		return nil, err
	}
	config, err := s.Config()
	if err == nil {
		config.Timeout, config.ContentType = time.Minute, runtime.ContentTypeProtobuf
		s.client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, errors.Join(err, s.Kill())
	}
	return s, nil
}

// restart ends the server once no change is under way, and starts it again over what it had.
func (s *apiServer) restart(end func(*harness.APIServer) error) error {
	s.up.Lock()
	defer s.up.Unlock()
	if err := end(s.APIServer); err != nil {
		rig.Progress("  %v", err) // a busy machine may not end it in time, and then it is killed
	}
	return s.Start()
}

// await waits until the server is not just starting again.
func (s *apiServer) await() {
	s.up.RLock()
	defer s.up.RUnlock()
}

// createNode registers the node in the first zone.
func (s *apiServer) createNode(ctx context.Context, both bool) error {
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress.String()}}
	if both {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: nodeAddress6.String()})
	}
	_, err := s.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName, corev1.LabelTopologyZone: zones[0]}},
		Status:     corev1.NodeStatus{Addresses: addresses},
	}, metav1.CreateOptions{})
	return err
}

// setZone changes the label of the node.
func (s *apiServer) setZone(ctx context.Context, zone string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, corev1.LabelTopologyZone, zone)
	_, err := s.client.CoreV1().Nodes().Patch(ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (s *apiServer) createNamespaces(ctx context.Context, items []*item) error {
	seen := map[string]bool{}
	for _, it := range items {
		if seen[it.namespace] {
			continue
		}
		seen[it.namespace] = true
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: it.namespace}}
		if _, err := s.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// create writes a Service and its slices.
func (s *apiServer) create(ctx context.Context, it *item) error {
	services := s.client.CoreV1().Services(it.namespace)
	err := untilWritten(ctx, func() error {
		_, err := services.Create(ctx, it.service(), metav1.CreateOptions{})
		return err
	}, func() error {
		_, err := services.Get(ctx, it.name, metav1.GetOptions{})
		return err
	})
	written := s.client.DiscoveryV1().EndpointSlices(it.namespace)
	for _, slice := range it.slices() {
		if err != nil {
			return err
		}
		err = untilWritten(ctx, func() error {
			_, err := written.Create(ctx, slice, metav1.CreateOptions{})
			return err
		}, func() error {
			_, err := written.Get(ctx, slice.Name, metav1.GetOptions{})
			return err
		})
	}
	return err
}

// patience is how an object is written to a server that is too busy: again and again, for minutes.
var patience = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 20, Cap: 10 * time.Second}

// untilWritten creates an object. A server that had no time to answer may have written it.
func untilWritten(ctx context.Context, create, get func() error) error {
	repeated := false
	return retry.OnError(patience, func(error) bool { return ctx.Err() == nil }, func() error {
		if repeated && get() == nil {
			return nil
		}
		repeated = true
		return create()
	})
}

// update writes a slice that exists. It tries again when the API server is too busy: the change is
// then late for both programs.
func (s *apiServer) update(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	s.up.RLock()
	defer s.up.RUnlock()
	busy := func(error) bool { return ctx.Err() == nil }
	return retry.OnError(patience, busy, func() error {
		_, err := s.client.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
		return err
	})
}

// remove deletes a Service and its slices.
func (s *apiServer) remove(ctx context.Context, it *item) error {
	if err := s.client.CoreV1().Services(it.namespace).Delete(ctx, it.name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for at := range it.sliceCount() {
		if err := s.client.DiscoveryV1().EndpointSlices(it.namespace).Delete(ctx, it.slice(at).Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// forEach calls do for each item, several at a time and in order. It returns the first error.
func forEach(ctx context.Context, items []*item, do func(context.Context, *item) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				if err := do(ctx, items[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
