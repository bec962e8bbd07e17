// All components in their states, for developers: to see what there is (`bun src/console/pages/all-components.html`), and for the tests of
// contrast and width. The console does not have it.

import { render, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ApiError } from "../contact/api.ts";
import { Button, Segments } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { DraftBar } from "../ui/draft-bar.tsx";
import { icons, signs, type IconName, type SignName } from "../ui/drawings.ts";
import { Fleet } from "../ui/figures/fleet.tsx";
import { Share, Spark, Tile } from "../ui/figures/tile.tsx";
import { Check, Choice, Text } from "../ui/form.tsx";
import { Avatar, Icon, Logo, Sign } from "../ui/icon.tsx";
import { Menu } from "../ui/menu.tsx";
import { Page, Panel, Step, Why } from "../ui/page.tsx";
import { Empty, Facts, Failure, Line, Loading, signOf, State, When } from "../ui/parts.tsx";
import { Chip, Count, Pill, Tag } from "../ui/tag.tsx";
import { tell } from "../ui/toast.tsx";

const keysOf = <K extends string>(all: Readonly<Record<K, unknown>>) => Object.keys(all) as K[];
const kinds = [undefined, "primary", "tint", "ghost", "danger", "solid"] as const;
const words = [
  ["one", "One"],
  ["two", "Two"],
] as const;
type Word = (typeof words)[number][0];
const day = [3, 4, 4, 5, 7, 6, 6, 8, null, null, 7, 8];
const failure = new ApiError(503, { code: "busy", detail: "Busy.", hint: "Run `agent doctor`." }, "a1b2c3");

const Row = ({ title, children }: { title: string; children: ComponentChildren }) => (
  <Panel title={title} hasRoom={true}>
    <div class="group">{children}</div>
  </Panel>
);

function Parts() {
  return (
    <Page
      title="Parts"
      fact="components"
      pill={<Pill sign="on">online</Pill>}
      terminal={{ command: ["org", "list"], call: ["GET", "/example/org/"] }}
      actions={<Button icon="plus">Plain</Button>}
    >
      <Buttons />
      <Signs />
      <Figures />
      <Fields />
      <Answers />
      <DraftBar
        changes="1 new rule"
        refusal="A test fails"
        save={() => undefined}
        discard={() => undefined}
      />
    </Page>
  );
}

function Buttons() {
  const [word, setWord] = useState<Word>("one");
  return (
    <>
      <Why title="web-5 does not reach app-1" actions={<Button isSmall={true}>Open</Button>}>
        <p>What happened, why, and what to do.</p>
      </Why>
      <Why kind="good" title="All is well" />
      <Why kind="info" title="Nothing needs somebody" />
      <Row title="Buttons">
        {kinds.map((kind) => (
          <Button key={kind} kind={kind} icon="copy">
            {kind ?? "plain"}
          </Button>
        ))}
        {kinds.map((kind) => (
          <Button key={kind} kind={kind} isSmall={true}>
            {kind ?? "plain"}
          </Button>
        ))}
        <Button disabled={true}>disabled</Button>
        <Button icon="refresh" label="Icon alone" />
        <Button href="#buttons">a link</Button>
        <button type="button" class="plain as-link">
          as a link
        </button>
        <Segments label="Segments" value={word} choices={words} set={(next) => setWord(next)} />
        <Menu label="Menu">
          <a href="#menu">A link</a>
          <button type="button" class="danger">
            A danger
          </button>
        </Menu>
        <Menu label="Menu with words" words="More">
          <button type="button">An action</button>
        </Menu>
      </Row>
    </>
  );
}

function Signs() {
  return (
    <>
      <Row title="States">
        {keysOf(signOf).map((name) => (
          <State key={name} name={name} word={name} />
        ))}
        {([undefined, "good", "warn", "bad", "accent"] as const).map((kind) => (
          <Pill key={kind} kind={kind} sign="warn">
            {kind ?? "plain"}
          </Pill>
        ))}
        <Tag text="web" />
        <Tag text="all" isAll={true} />
        <Tag text="tcp 5432" isPort={true} />
        <Chip words="Away" sign="off" count={12} isOn={false} href="#chips" />
        <Chip words="Online" sign="on" count={274} isOn={true} href="#chips" />
        <Count count={9} words="need you" />
        <Count count={120} words="more" isSoft={true} />
        <When at="2026-01-01T00:00:00Z" />
        <When at={null} />
      </Row>
      <Row title="Icons">
        <Logo />
        <Avatar name="ada@example.org" />
        <Avatar name="web-1" icon="machines" />
        {keysOf<IconName>(icons).map((name) => (
          <Icon key={name} name={name} />
        ))}
        {keysOf<SignName>(signs).map((name) => (
          <Sign key={name} name={name} />
        ))}
      </Row>
    </>
  );
}

function Figures() {
  return (
    <>
      <div class="tiles">
        <Tile label="Online" value="274" of="of 299" facts="3 more" href="#tiles">
          <Spark values={day} />
        </Tile>
        <Tile label="Direct paths" value="91 %" facts={<span class="is-bad">4 broken</span>} href="#tiles">
          <Spark values={day} isBad={true} />
        </Tile>
        <Tile label="Newest" value="98 %" facts="6 behind" href="#tiles">
          <Share share={0.98} />
        </Tile>
      </div>
      <Panel title="Fleet" isAlarm={true} hasRoom={true}>
        <Fleet groups={[{ name: "web", href: "#fleet", online: 25, on: 20, part: 3, need: 2, off: 4 }]} />
      </Panel>
    </>
  );
}

function Fields() {
  const [word, setWord] = useState<Word>("one");
  const [text, setText] = useState("web, eu");
  const [isOn, setOn] = useState(true);
  return (
    <>
      <div class="two">
        <Panel title="Fields" hasRoom={true}>
          <Text label="Text" help="Help below it." value={text} set={setText} />
          <Text label="With a fault" errors={["Enter a name."]} value="x y" set={() => undefined} />
          <Choice label="Choice" value={word} choices={words} set={(next) => setWord(next)} />
          <Check label="A check box" checked={isOn} set={setOn} />
          <Check label="Disabled" checked={false} disabled={true} set={setOn} />
        </Panel>
        <Panel title="Facts and a command" hasRoom={true}>
          <Facts
            facts={[
              ["Address", "10.64.1.44"],
              ["Group", <Tag text="web" />],
            ]}
          />
          <div class="mt8">
            <Line text="sudo agent up KEY" />
          </div>
          <div class="mt8">
            <Line text="sudo agent up KEY" isMain={true} />
          </div>
        </Panel>
      </div>
      <Panel title="Steps" hasRoom={true}>
        <ol class="steps">
          <Step at={1} title="Done" state="done">
            <p class="quiet">As a line.</p>
          </Step>
          <Step at={2} title="Here" state="here">
            <ol class="live">
              <li>
                <span class="spin" />
                <span class="faint">Under way</span>
                <span />
              </li>
            </ol>
          </Step>
          <Step at={3} title="Later" state="later" />
        </ol>
      </Panel>
    </>
  );
}

function Answers() {
  const [isAsking, setAsking] = useState(false);
  return (
    <>
      <Panel title="Empty, loading, failed" hasRoom={true}>
        <Empty text="There is nothing yet.">
          <Button kind="primary">Add one</Button>
        </Empty>
        <Loading rows={2} />
        <Failure error={failure} retry={() => undefined} />
        <p class="group">
          <Button kind="danger" onClick={() => setAsking(true)}>
            Ask
          </Button>
          <Button onClick={() => tell("This was done.")}>Tell</Button>
          <Button onClick={() => tell("This failed.", true)}>Tell a failure</Button>
        </p>
      </Panel>
      {isAsking ? (
        <Confirm
          title="Revoke web-1?"
          action="Revoke web-1"
          effect="It is cut off within seconds. It can be restored."
          typeName="web-1"
          run={() => Promise.reject(failure)}
          close={() => setAsking(false)}
        />
      ) : null}
    </>
  );
}

const place = document.getElementById("console");
if (place !== null)
  render(
    <main>
      <Parts />
    </main>,
    place,
  );
