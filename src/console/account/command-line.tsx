// Signs the command line in: that of this machine, which opened this page, or that of a machine which shows a code.

import { useState } from "preact/hooks";
import { commandLineApi } from "../../api/command-line.ts";
import { call } from "../contact/api.ts";
import { me } from "../contact/me.ts";
import { query } from "../frame/router.ts";
import { FormFailure, Text, useAction } from "../ui/form.tsx";
import { Gate } from "../ui/page.tsx";
import { AskingMachine, type Asking } from "./asking-machine.tsx";

export function CommandLine() {
  const port = Number(query.value.get("port"));
  const [state = "", challenge = ""] = ["state", "challenge"].map((name) => query.value.get(name) ?? "");
  const isHere = Number.isInteger(port) && port > 0 && port < 65_536 && state !== "" && challenge !== "";
  return (
    <Gate title="Sign in the command line" isInside={true}>
      {isHere ? <Here port={port} state={state} challenge={challenge} /> : <ByCode />}
    </Gate>
  );
}

type HereProps = { port: number; state: string; challenge: string };

function Here({ port, state, challenge }: HereProps) {
  const { error, isRunning, run } = useAction(async () => {
    const { code } = await call(commandLineApi.createCode, {}, { code_challenge: challenge });
    // Always this machine: whoever made the address of this page gets nothing elsewhere.
    location.assign(`http://127.0.0.1:${port}/?${new URLSearchParams({ code, state }).toString()}`);
  });
  return (
    <>
      <p>
        The command line on this machine wants to act as <bdi>{me.value?.email}</bdi>. Allow it only if you
        have just started <code>agent login</code> here.
      </p>
      <FormFailure error={error} />
      <button class="primary full" disabled={isRunning} onClick={run}>
        Sign it in
      </button>
    </>
  );
}

function ByCode() {
  const [code, setCode] = useState("");
  const [found, setFound] = useState<Asking>();
  const [outcome, setOutcome] = useState<"approved" | "refused">();
  const { error, isRunning, submit } = useAction(async () =>
    setFound(await call(commandLineApi.find, {}, { user_code: code })),
  );
  if (outcome !== undefined)
    return (
      <p role="status">
        {outcome === "approved"
          ? "The machine is signed in. You can close this page."
          : "The sign-in was refused."}
      </p>
    );
  if (found !== undefined) return <Decision {...{ code, found, setOutcome }} />;
  return (
    <>
      <p>
        Type the code that your own terminal shows. Never type a code that you were sent: its sender would be
        signed in as <bdi>{me.value?.email}</bdi>.
      </p>
      <form onSubmit={submit}>
        <Text
          label="Code"
          errors={error?.fields["user_code"]}
          value={code}
          set={setCode}
          control={{
            name: "user_code",
            autocomplete: "off",
            spellcheck: false,
            required: true,
            maxlength: 40,
          }}
        />
        <FormFailure error={error} shown={["user_code"]} />
        <button class="primary full" disabled={isRunning}>
          Go on
        </button>
      </form>
    </>
  );
}

type DecisionProps = { code: string; found: Asking; setOutcome(outcome: "approved" | "refused"): void };

function Decision({ code, found, setOutcome }: DecisionProps) {
  const decide = (approve: boolean) => async () => {
    await call(commandLineApi.decide, {}, { user_code: code, approve });
    setOutcome(approve ? "approved" : "refused");
  };
  const approval = useAction(decide(true));
  const refusal = useAction(decide(false));
  return (
    <>
      <AskingMachine asking={found} />
      <p>
        Whoever sits at that machine then acts as <bdi>{me.value?.email}</bdi>, in all your organizations.
        Sign it in only if you started <code>agent login</code> there yourself.
      </p>
      <FormFailure error={approval.error ?? refusal.error} />
      <button class="primary full" disabled={approval.isRunning} onClick={approval.run}>
        Sign it in
      </button>
      <button class="danger full" disabled={refusal.isRunning} onClick={refusal.run}>
        Refuse
      </button>
    </>
  );
}
