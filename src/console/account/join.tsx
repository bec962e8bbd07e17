// Lets a machine join that waits in a terminal (`agent up URL`). The page shows which machine asks. The words are typed:
// they are in no link, and the control plane tells nobody.

import { enrollmentsApi, type Enrollment } from "../../api/enrollments.ts";
import { useEffect, useState } from "preact/hooks";
import { ApiError, call } from "../contact/api.ts";
import { me } from "../contact/me.ts";
import { query } from "../frame/router.ts";
import { Choice, FormFailure, Text, useAction } from "../ui/form.tsx";
import { Gate } from "../ui/page.tsx";
import { Empty, Failure, Loading } from "../ui/parts.tsx";
import { AskingMachine } from "./asking-machine.tsx";

export function Join() {
  const request = query.value.get("request") ?? "";
  const [found, setFound] = useState<Enrollment>();
  const [error, setError] = useState<ApiError>();
  const [joined, setJoined] = useState<string>();
  useEffect(() => {
    if (request === "") return;
    call(enrollmentsApi.find, {}, { request }).then(setFound, (failure: unknown) => {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure);
    });
  }, [request]);
  return (
    <Gate title="Let a machine join" isInside={true}>
      {content()}
    </Gate>
  );

  function content() {
    if (request === "")
      return (
        <Empty text="Run agent up with the address of this control plane on the new machine, and open the address that it shows." />
      );
    if (joined !== undefined)
      return (
        <p role="status">
          <bdi>{found?.name}</bdi> joins <bdi>{joined}</bdi> now and goes on by itself: look at its terminal.
          You can close this page.
        </p>
      );
    if (error !== undefined) return <Failure error={error} />;
    if (found === undefined) return <Loading />;
    return (
      <>
        <AskingMachine asking={found}>
          <div>
            <dt>System</dt>
            <dd>
              <bdi>{found.platform ?? "unknown"}</bdi>
            </dd>
          </div>
          <div>
            <dt>Name in the network</dt>
            <dd>
              <bdi>{found.name}</bdi>
            </dd>
          </div>
        </AskingMachine>
        {found.organizations.length === 0 ? (
          <p role="alert">
            None of your organizations lets you add machines this way. An administrator can allow it in the
            settings of the organization.
          </p>
        ) : (
          <Words {...{ request, found, setJoined }} />
        )}
      </>
    );
  }
}

type WordsProps = { request: string; found: Enrollment; setJoined(slug: string): void };

function Words({ request, found, setJoined }: WordsProps) {
  const [words, setWords] = useState("");
  const [slug, setSlug] = useState(found.organizations[0]?.slug ?? "");
  const { error, isRunning, submit } = useAction(async () => {
    await call(enrollmentsApi.confirm, { slug }, { request, words });
    setJoined(slug);
  });
  const choices = found.organizations.map((each) => [each.slug, `${each.name} (${each.slug})`] as const);
  return (
    <>
      <p>
        The machine becomes a node of <bdi>{me.value?.email}</bdi>. Type the four words from the terminal of
        that machine only if it is before you. Never type words that you were sent: their sender's machine
        would join.
      </p>
      <form onSubmit={submit}>
        {choices.length > 1 ? (
          <Choice label="Organization" value={slug} set={setSlug} choices={choices} />
        ) : (
          <p>
            Organization: <bdi>{choices[0]?.[1]}</bdi>
          </p>
        )}
        <Text
          label="The four words that the machine shows"
          errors={error?.fields["words"]}
          value={words}
          set={setWords}
          control={{
            name: "words",
            autocomplete: "off",
            autocapitalize: "none",
            spellcheck: false,
            required: true,
            maxlength: 200,
          }}
        />
        <FormFailure error={error} shown={["words"]} />
        <button class="primary full" disabled={isRunning}>
          Let it join
        </button>
      </form>
    </>
  );
}
