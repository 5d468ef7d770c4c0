"""TFJobs of many shapes, written for these tests: those of the public ones that were tried, and some more."""

from __future__ import annotations

from typing import Final

POD: Final = (
    "template: {spec: {containers: [{name: tensorflow, image: 'registry/mnist:1', command: [python, train.py]}]}}"
)

PS_AND_WORKERS: Final = f"""
apiVersion: "kubeflow.org/v1"
kind: "TFJob"
metadata:
  name: "dist-mnist"
spec:
  tfReplicaSpecs:
    PS: {{replicas: 2, restartPolicy: Never, {POD}}}
    Worker: {{replicas: 4, restartPolicy: Never, {POD}}}
"""

WORKERS: Final = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: multi-worker
  namespace: research
  labels:
    kueue.x-k8s.io/queue-name: evenings
spec:
  runPolicy:
    cleanPodPolicy: None
    backoffLimit: 2
    ttlSecondsAfterFinished: 600
    activeDeadlineSeconds: 86400
    suspend: true
  tfReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        metadata:
          annotations: {sidecar.istio.io/inject: "false"}
        spec:
          nodeSelector: {gpu: a100}
          tolerations:
            - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
          initContainers:
            - {name: data, image: busybox, command: [sh, -c, "cp -r /from/. /data"]}
          containers:
            - name: tensorflow
              image: registry/mnist:1
              args: ["--epochs", "3"]
              env: [{name: DATA, value: /data}]
              ports: [{name: tfjob-port, containerPort: 4444}]
              resources:
                limits: {nvidia.com/gpu: 1}
              volumeMounts: [{name: data, mountPath: /data}]
          volumes: [{name: data, persistentVolumeClaim: {claimName: mnist}}]
"""

ALL_TYPES: Final = f"""
kind: PersistentVolumeClaim
apiVersion: v1
metadata: {{name: models, creationTimestamp: 2020-05-01T10:00:00Z}}
spec: {{accessModes: [ReadWriteMany]}}
---
# A comment.
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: everything
spec:
  successPolicy: AllWorkers
  tfReplicaSpecs:
    Evaluator: {{restartPolicy: Always, {POD}}}
    Worker: {{replicas: 2, restartPolicy: ExitCode, {POD}}}
    PS: {{replicas: 1, restartPolicy: OnFailure, {POD}}}
    Chief: {{replicas: 1, restartPolicy: OnFailure, {POD}}}
"""

OLDEST: Final = f"""
apiVersion: "kubeflow.org/v1alpha1"
kind: TFJob
metadata: {{name: oldest}}
spec:
  tensorboard: {{logDir: /logs}}
  replicaSpecs:
    - {{replicas: 1, tfReplicaType: MASTER, {POD}}}
    - {{replicas: 3, tfReplicaType: WORKER, {POD}}}
"""

SIDECAR: Final = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {generateName: with-logs-}
spec:
  cleanPodPolicy: All
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          affinity:
            podAntiAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                - topologyKey: kubernetes.io/hostname
                  labelSelector:
                    matchExpressions:
                      - {key: tf-replica-type, operator: In, values: [worker]}
                      - {key: tf-replica-index, operator: Exists}
          schedulerName: volcano
          hostNetwork: true
          restartPolicy: OnFailure
          containers:
            - {name: logs, image: fluentd}
            - name: tensorflow
              image: gcr.io/${PROJECT}/<image>:1
              env:
                - {name: TF_CONFIG, value: "{}"}
                - {name: KEEP, value: "$(HOME)"}
"""
