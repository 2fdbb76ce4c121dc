#!/bin/bash
# A table of cases under Slurm: a Ray cluster for the time of the job, on the nodes of the job.
#     sbatch slurm.sh
# The network, the cases and the answers lie on a file system that all nodes see, and so does the virtual environment.
# After a time limit or a failure: sbatch it again; --resume goes on with the parts that are not done.
#SBATCH --job-name=jtgpu-cases
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=48
#SBATCH --exclusive
#SBATCH --time=08:00:00
#SBATCH --requeue

set -euo pipefail
source "${VENV:-$HOME/jtgpu/bin/activate}"
export RAY_USAGE_STATS_ENABLED=0
export JTGPU_CACHE_DIR="${TMPDIR:-/tmp}/jtgpu-$SLURM_JOB_ID"

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# starts Ray on every node, runs the command on the first one when all are there, and ends Ray with it
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \
  ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" --num-cpus "$SLURM_CPUS_PER_TASK" -- \
  jtgpu batch "$SLURM_SUBMIT_DIR/alarm.net" "$SLURM_SUBMIT_DIR/cases" -o "$SLURM_SUBMIT_DIR/answers" \
  -t HYPOVOLEMIA,LVFAILURE,PAP --keep id --log-evidence --on-error flag --cluster auto --resume
