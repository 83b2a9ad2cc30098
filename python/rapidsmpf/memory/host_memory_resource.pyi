from rmm.mr import DeviceMemoryResource

class HostMemoryResource(DeviceMemoryResource):
    def __init__(self) -> None: ...
