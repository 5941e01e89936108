// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/controller/daemon"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/test/harness"
)

// update is the DaemonSet of Sluice on a pool, with the DaemonSet controller of Kubernetes. The test
// does the work of the kubelets.
type update struct {
	*pool
	t        *testing.T
	roots    string // a directory per node, for its root
	informer informers.SharedInformerFactory
	pods     corelisters.PodNamespaceLister
	starting chan struct{} // limits how many pods start at the same time
	tasks    sync.WaitGroup
}

func newUpdate(t *testing.T, p *pool) *update {
	factory := informers.NewSharedInformerFactory(p.client, 0)
	return &update{pool: p, t: t, roots: t.TempDir(), informer: factory,
		pods: factory.Core().V1().Pods().Lister().Pods(deployedIn), starting: make(chan struct{}, 8)}
}

// start starts the controller, as kube-controller-manager does, and the kubelets, until the end of the test.
func (r *update) start(t *testing.T) {
	t.Helper()
	ctx, apps, core := t.Context(), r.informer.Apps().V1(), r.informer.Core().V1()
	controller, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(),
		r.client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	r.informer.Start(ctx.Done())
	r.informer.WaitForCacheSync(ctx.Done())
	t.Cleanup(r.tasks.Wait)
	r.tasks.Go(func() { controller.Run(ctx, 2) })
	r.tasks.Go(func() {
		known := map[types.UID]bool{}
		for sleep.For(ctx, 100*time.Millisecond) {
			for _, pod := range r.list() {
				if known[pod.UID] {
					continue
				}
				known[pod.UID] = true
				r.tasks.Go(func() {
					if err := r.run(ctx, pod); err != nil && ctx.Err() == nil {
						r.t.Errorf("pod %s: %v", pod.Name, err)
					}
				})
			}
		}
	})
}

// list returns the pods that the API server sent last.
func (r *update) list() []*corev1.Pod {
	pods, err := r.pods.List(labels.Everything())
	if err != nil { // a cache returns none
		r.t.Error(err)
	}
	return pods
}

// run does what the scheduler and a kubelet do for a pod, until the pod is deleted.
func (r *update) run(ctx context.Context, pod *corev1.Pod) error {
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	node := terms[0].MatchFields[0].Values[0]
	k := &harness.Kubelet{T: r.t, Server: r.server, Client: r.client, Node: &harness.Host{Namespace: r.network.Hosts[node]},
		Root: filepath.Join(r.roots, node), Logs: filepath.Join(r.logs, pod.Name)}
	client := r.client.CoreV1().Pods(pod.Namespace)
	container, err := k.NewPod(ctx, pod.Namespace, pod.Spec)
	err = errors.Join(err, os.Mkdir(k.Logs, 0o700), client.Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{}))
	if err == nil {
		err = r.keep(ctx, pod, container)
	}
	if err != nil {
		return err
	}
	return client.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}

// keep keeps the process of a pod running and reports its readiness, until the pod is to be deleted.
func (r *update) keep(ctx context.Context, pod *corev1.Pod, container *harness.Pod) error {
	var process *harness.Proxy
	probe, failure := pod.Spec.Containers[0].ReadinessProbe, "not probed"
	for {
		if now, err := r.pods.Get(pod.Name); err != nil || now.UID != pod.UID || now.DeletionTimestamp != nil {
			break
		}
		var err error
		if process == nil || !process.Running() {
			process, err = r.startPod(container)
		}
		if err == nil {
			err = container.Probe(ctx, probe)
		}
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now != failure {
			if err := r.report(ctx, pod, now); err != nil {
				return err
			}
			failure = now
		}
		if !sleep.For(ctx, time.Duration(probe.PeriodSeconds)*time.Second) {
			return ctx.Err()
		}
	}
	switch {
	case failure == "":
		return process.Stop()
	case process != nil:
		return process.Kill() // it may have ended
	default:
		return nil
	}
}

func (r *update) startPod(pod *harness.Pod) (*harness.Proxy, error) {
	r.starting <- struct{}{}
	defer func() { <-r.starting }()
	return pod.Start()
}

// report writes the Ready condition of a pod. Its message is the error of the probe.
func (r *update) report(ctx context.Context, pod *corev1.Pod, failure string) error {
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: failure, LastTransitionTime: metav1.Now()}
	if failure != "" {
		ready.Status = corev1.ConditionFalse
	}
	status := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{ready}}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = r.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
