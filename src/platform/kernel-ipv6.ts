// Whether the kernel of this machine knows IPv6 at all. Without addresses, or with the sysctl disable_ipv6, it still does.

import { existsSync } from "node:fs";

/** A Linux that was started with ipv6.disable=1 has no such file. Other systems always know IPv6. */
export const kernelHasIpv6 = (): boolean => process.platform !== "linux" || existsSync("/proc/net/if_inet6");
