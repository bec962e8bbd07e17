// Asks questions on a terminal, and hides the answer to a secret one. No library for prompts: that of consola shows every
// character that is typed, and adds 8 ms to the start.

import { AppError } from "../base/errors.ts";
import type { System } from "../base/system.ts";

export type Question = { text: string; isSecret: boolean };

/**
 * The answers, without line ends. The terminal's echo is off from before the first question until after the last answer, so
 * that pasted or early typed text is neither shown nor lost. Ctrl-C throws `interrupted`.
 */
export async function ask(
  questions: readonly Question[],
  system: Pick<System, "stderr" | "stdinIsTerminal">,
): Promise<string[]> {
  if (!system.stdinIsTerminal) throw new AppError("usage", "Cannot ask: standard input is not a terminal");
  const { stdin } = process;
  stdin.setRawMode(true);
  stdin.ref();
  const typed = characters(stdin);
  try {
    const answers: string[] = [];
    for (const { text, isSecret } of questions) {
      system.stderr.write(text);
      const echo = isSecret ? () => {} : system.stderr.write;
      answers.push(await readLine(typed, echo).finally(() => system.stderr.write("\n")));
    }
    return answers;
  } finally {
    stdin.setRawMode(false);
    await typed.return(undefined);
    // An open read would keep the process alive.
    stdin.pause();
    stdin.unref();
  }
}

/** Before another program asks on this terminal: a paused stream may still take what is typed. Nothing is asked after that. */
export function endQuestions(): void {
  process.stdin.destroy();
}

/** Asks for one secret; a new one must be typed twice. */
export async function askSecret(
  { text, isNew }: { text: string; isNew: boolean },
  system: Pick<System, "stderr" | "stdinIsTerminal">,
): Promise<string> {
  const questions = [{ text, isSecret: true }];
  if (isNew) questions.push({ text: "Again: ", isSecret: true });
  const [secret = "", repeated = secret] = await ask(questions, system);
  if (repeated !== secret) throw new AppError("usage", "The two inputs differ: run the command again");
  return secret;
}

async function* characters(stdin: typeof process.stdin): AsyncGenerator<string, void> {
  const decoder = new TextDecoder();
  // The stream is not destroyed at the end, because a command may ask again.
  for await (const chunk of stdin.iterator({ destroyOnReturn: false })) {
    yield* typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true });
  }
}

/** What a terminal in raw mode sends for these keys. */
const keys = { ctrlC: "\u0003", ctrlD: "\u0004", backspace: ["\u007f", "\b"] };

async function readLine(typed: AsyncGenerator<string, void>, echo: (text: string) => void): Promise<string> {
  let line: string[] = [];
  for (;;) {
    const { value: char, done } = await typed.next();
    if (done === true || char === "\r" || char === "\n") return line.join("");
    if (char === keys.ctrlC) throw new AppError("interrupted", "Interrupted");
    if (char === keys.ctrlD) throw new AppError("failed", "The question was not answered");
    if (keys.backspace.includes(char)) {
      if (line.length > 0) echo("\b \b");
      line = line.slice(0, -1);
    } else {
      echo(char);
      line.push(char);
    }
  }
}

/**
 * Asks for a word before what is hard to undo. `why`: the reason, for the refusal without a terminal. Throws usage without a
 * terminal, failed for another word.
 */
export async function confirmWord(
  word: string,
  { why, question }: { why: string; question: string },
  system: Pick<System, "stderr" | "stdinIsTerminal">,
): Promise<void> {
  if (!system.stdinIsTerminal) throw new AppError("usage", `${why}: give --yes, or run it on a terminal`);
  const [answer] = await ask([{ text: question, isSecret: false }], system);
  if (answer?.trim() !== word) throw new AppError("failed", "Nothing was changed: the answer does not match");
}
