// `agent --ipc-mode socket|pipe`: the daemon. It has no word of its own on the command line.

import { AppError } from "../errors.ts";
import type { Command } from "./command.ts";

export const command: Command = {
  name: "",
  summary: "Run as the daemon",
  examples: [],
  async run() {
    throw new AppError("failed", "The daemon is not part of this build yet");
  },
};
