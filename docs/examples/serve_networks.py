"""Networks on Ray Serve; see rayservice.yaml. On this machine: serve run serve_networks:app"""

import os

import jtgpu
import jtgpu.serve

networks = os.environ.get("JTGPU_NETWORKS", "alarm").split(",")
app = jtgpu.serve.deployment(
    {os.path.basename(name).partition(".")[0]: jtgpu.load(name).plan() for name in networks},
    token=os.environ["JTGPU_TOKEN"],
    replicas=int(os.environ.get("JTGPU_REPLICAS", "1")),
    gpus=float(os.environ.get("JTGPU_GPUS", "0")),
)
