// Flags that several commands of a node share.

import type { Flags } from "./values.ts";

export const accessTokenFlag: Flags = {
  "access-token": {
    type: "string",
    valueHint: "JWT",
    secret: true,
    description: "Access token of an administrator",
  },
};

export const allowRoutesFlag: Flags = {
  "allow-routes": {
    type: "string",
    valueHint: "NETWORKS",
    description:
      "Networks that the control plane can route, even a default route: 0.0.0.0/0,::/0 (none: revoke it)",
  },
};
