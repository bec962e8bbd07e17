// `agent start TEAM`.

import { teamCommand } from "./team-command.ts";

export const command = teamCommand(
  "start",
  "Start a team's overlay",
  "It is wanted from then on: it comes back after a reboot, and when it ends by itself.",
);
