from .plan import bench as bench
from .plan import main as main
