// Asks the person at the terminal for a secret, without showing it. Never used where input is not a terminal.

import { AppError } from "../errors.ts";
import type { System } from "../system.ts";

/** What was typed, without the line's end. Throws interrupted on Ctrl-C. */
export async function askSecret(
  question: string,
  system: Pick<System, "stderr" | "stdinIsTerminal">,
): Promise<string> {
  if (!system.stdinIsTerminal) throw new AppError("usage", "There is no terminal to ask on");
  system.stderr.write(question);
  const { stdin } = process;
  stdin.setRawMode(true);
  try {
    return await readHidden(stdin);
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    system.stderr.write("\n");
  }
}

async function readHidden(stdin: typeof process.stdin): Promise<string> {
  let typed = "";
  for await (const chunk of stdin) {
    for (const char of String(chunk)) {
      if (char === "\r" || char === "\n") return typed;
      if (char === "\u0003" || char === "\u0004") throw new AppError("interrupted", "Interrupted");
      typed = char === "\u007f" || char === "\b" ? typed.slice(0, -1) : typed + char;
    }
  }
  return typed;
}
