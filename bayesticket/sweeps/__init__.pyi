from .pool import failures as failures
from .pool import train_jobs as train_jobs
from .sweep import Configs as Configs
from .sweep import Runs as Runs
from .sweep import assemble as assemble
from .sweep import sweep as sweep
from .sweep import sweep_configs as sweep_configs
from .worker import Job as Job
