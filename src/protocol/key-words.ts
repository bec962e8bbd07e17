// Words for a node's public key (four, of sealed keys six), which a user reads on a terminal and types in a browser. Never change
// the list: agents and control planes of different versions compare words.

/** One of 2,048 words holds 11 bits. */
const wordBits = 11;
const usualCount = 4;
/** Words for a host key that signers certify: 66 bits, since a thief may search for a key with the same words for long. */
export const sealedKeyWords = 6;

/** The words of a key: the first `count` times 11 bits of its fingerprint, the SHA-256 of the public key in hex. */
export function wordsOfKey(fingerprint: string, count = usualCount): string[] {
  const all = list.split(/\s+/);
  const digits = Math.ceil((wordBits * count) / 4);
  const bits = BigInt(`0x${fingerprint.slice(0, digits)}`);
  // The last digit may have more bits than the words need.
  const spareBits = digits * 4 - wordBits * count;
  return Array.from({ length: count }, (_, place) => {
    const index = (bits >> BigInt(wordBits * (count - 1 - place) + spareBits)) & BigInt((1 << wordBits) - 1);
    return all[Number(index)] ?? "";
  });
}

/** Whether these are the words of the key, as users type them: in any case, with any spaces and signs between. */
export function areWordsOfKey(typed: string, fingerprint: string, count = usualCount): boolean {
  const words = typed
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter((word) => word !== "");
  return words.join(" ") === wordsOfKey(fingerprint, count).join(" ");
}

/** 2,048 common words of 4 to 8 letters. Two letters at least differ between any two, and none begins another. */
const list = `abacus abbey ability abroad absence absorb academy accent account accuse achieve acid acorn acoustic acquire across
action actor adapter address adjust admiral admire admit adopt adult advance adverb advice aerial aerobic affair
afford agenda agent airline airport aisle alarm album alcove alert algebra alien alley allow almanac almond almost
alone alpaca alpine already also alter always amazing amber among amount ample anchor ancient anemone angel angle
animal annual answer antenna anthem antique anvil anyone apart apology appear appoint approve apricot april apron
aquarium arbor arcade archer arctic arena argue arise armada army aroma arrange arrest arrow artery article artist
ashore aside aspen aspirin asteroid athlete atlas atom attach attend attic attract attune auburn audio august aunt
austere author autumn avenue aviator avocado avoid awake award awful awning axis baboon bachelor bacon badge baggage
bagpipe baker balance ballad ballet balloon bamboo banana bandage bandit banjo banner banquet barber barefoot
bargain barista bark barley barrel basalt bashful basil basket bassoon bathtub battery bazaar beagle bean beard
beaver because become bedroom beetle before beggar begin behave behind belfry bell belong bench beneath benefit
beret berry beside best better between beyond bicycle billion binary binder bingo biplane birch bird birthday
biscuit bishop bison blade blanket blazer bleach blender blimp blind blossom blouse blue blunt boat bobcat body
boiler bold bonfire bonnet bonus boost border borrow botany bottle bottom boulder bounce bouquet bowling boxer brain
brake branch brand brass bravery bread breeze brick bridge brief bring broccoli broker bronze broom brother brown
browser bruise brush bubble bucket buckle buddy budget buffalo buffet bugle builder bulb bulldog bumper bundle
bunker bunny burden bureau burger burlap burst bushel business button buyer buzzard bypass cabbage cabin cable
cactus cadet cafe calcium calf camel camera campus canal canary cancel candid candle candy cannon canoe canopy
canteen canvas capital capture caramel caravan carbon career cargo caribou carnival carpet carrot carry cartoon
cashew castle catalog catfish caution cavern cedar ceiling celery cellar cello cement census centaur center ceramic
cereal certain chain chalk chamber champion chance channel chaos chapel chapter charm chase chat cheap check cheer
cheese cheetah chef chemist cherry chess chicken child chimney chisel choir choose chop chorus chowder chrome cider
cinema cinnamon circle circuit circus citizen citrus city civic claim clarify classic clay clean clerk clever client
cliff climate climb cling clinic clip clock close cloud clown club clump cluster clutch coach coast cobalt cobra
cocoa coffee coil collect college colony color column comb comedy comet comfort comic command common compact compare
compass compete compost computer concert condor cone confirm connect consult contain contest convince convoy cooking
copilot copper copy coral cork corner correct cosmos cottage cotton cougar council couple courage course cousin
cowboy coyote crab cradle craft crane crash crater crawl crayon crazy cream credit creek crescent crew cricket crisp
critic crocus crouch crowd crucial cruel crumb crunch crystal cube cuckoo culture curb curfew curious currency
current curve cushion custom cycle cyclist cyclone cymbal dagger dairy damsel dancer daring dart dash date daughter
dawn debate debut decade decent deck declare decline decoy decrease deer default defense defy degree delay delight
deliver delta demand denim dense depart deposit depth deputy derby desert design destiny detail detect detour
develop device dewdrop diagram dialog diary dice dictate diesel diet differ digital dignity dilemma dinghy dinner
dinosaur diploma direct dishes display distant ditch diver divide dizzy doctor dollar dolphin domain dome dominos
donate donkey doorbell dormant double dough dozen dragon drama drawer dress drift drill drink drive drop drought
drum duchess dugout dull dump dune duplex dust dutiful duty dwarf dynamo eager early earn earring earth easel easter
easy eating echo eclipse economy edge edition editor educate effort eight eject elastic elbow elder election elegant
elite elixir email embark embassy emblem embody embrace emerald emerge emotion emperor empire employ empty enamel
encore endorse enemy energy engage engine enhance enigma enjoy enlist enough enrich ensure entire entry epic episode
equal equator equip eraser erode erosion errand error erupt escape escort essay estate ethics evade evening event
evidence evident evoke evolve exact example exceed excite exclude excuse exhibit exile exit exotic expand expert
explore expose express extend extinct extra eyebrow eyelid fabric facade face factory faculty fair faith falcon fall
family famous fancy farmer fashion fast fatal father faucet feature february federal fellow female fence fennel fern
fetch fever fiber fiction fiddle field fifteen fifty figure file filter final finch find finger finish fireman firm
first fiscal fishing fitness flag flame flamingo flannel flash flavor fleet flex flicker flight flint float flood
flour flower fluffy fluid flute foam focus foggy folder foliage folk fondue forbid force forest forget formal
formula fortune forum forward fossil found fourteen fragile frail freak freedom freight fresh friday friend fries
fringe frog front frozen frugal fruit fudge fuel fulcrum furnace fury fuse future gadget gain galaxy gallery gallop
gamble gander garage garden gargoyle garlic garment garnet gauge gazelle gazette gelatin general genius genre gentle
gerbil geyser ghost giant gibbon giddy gift giraffe girl give glacier gladly glance glass glaze glider glimpse
glitter globe gloomy glory glow gnome goal goblet goggle golfer gondola goose gopher gossip gourmet governor grace
grammar granite graphic grasp gravel gravity gravy grease great green grid grocery groove ground group growl growth
grumble grunt guard guess guide guild guitar gulf gumdrop gutter gymnast gypsum habit haircut halfway halo hammer
hamster hand hangar happen happy harmony harness harp harvest hatchet haul haven hawk haystack hazard hazel health
heart heater heavy helium helmet helper herald herbal hermit hero hesitate hexagon hiccup hickory high hike hiking
hinge hint hippo history hobby hockey holiday hollow holly honest honey honor hoof hope horizon hornet horse hostel
hour hover howl huddle huge human humble humid humor hunger hurry hurt husband husky hybrid hydrant hyena hymn
hyphen iceberg icicle icing icon idea idle igloo ignore iguana image imagine immense immune impact import impose
impulse inbox incense include income increase index indigo indoor infant inflict inform inherit injury inkwell inlet
inmate innocent input inquiry insect inside insist inspire install instead intact intend invent invite iris island
isolate issue item itself ivory jacket jackpot jade jaguar january jargon jasmine javelin jazz jeans jeep jelly
jersey jester jewel jigsaw jingle jogger joint joke jolt journal journey joyful juggle juice july jumbo junior
juniper junk justice karate kayak keen keeper kernel ketchup kettle kick kidney kimono kindness king kiosk kiss kite
kitten kiwi knee knife knight knob knock koala kudos label labor lack lacquer ladder ladybug lagoon lake lamb lament
lantern laptop larch large lasagna laser lasso lattice laugh laurel lava lawyer lazy leader leaf league lease
leather lecture left legend legume leisure lemon lemur lend length lentil leopard lesson lettuce level liberty
license lifeboat lilac lily limber limit linen lion liquid list little lizard llama loan lobster local locker locust
lodge logic logo lonely longing look lord lotion lotus lounge love lucky luggage lullaby lunar lunch lung luxury
lyric magenta magic magma magnet magpie mahogany mailbox major mammal manager mango mansion mantle manual maple
marble margin marina marker marmot maroon marriage marsh martial marvel mascot mask mason matador match matrix
matter mature maximum meadow meal meaning measure media medley meeting melody melon member memory mentor menu
mercury mermaid meteor method metro midnight migrate mild mimic mineral minimum minnow minor minus minute mirror
mission mixture mobile model modern modest modify module moisture moment monarch monday monitor monsoon month
monument mortar mosaic moss mother motor mouse movie muffin mule muscle museum music musket mustard mutual muzzle
myself mystery myth nail name napkin narrator nation native nearby neat nebula nectar needle negative neither neon
nephew neptune nerve network newborn nickel niece nimble nine noble nobody nomad noodle north nostril notable
nothing notice nougat novel november nucleus nugget number nurse nutmeg nylon oasis obelisk object oblige oboe
observe obtain obvious occupy ocean octagon october octopus odor offer office often olive omega omelet omit onion
online onward onyx opal opera opinion opossum optical option oracle orange orbit orchard orchid ordeal oregano organ
orient origin oriole orphan osprey otter ottoman outcome outdoor outfit outlaw outline outpost oven overall owner
oxford oxygen oyster ozone pacific package paddle padlock page painter palace palm pamphlet pancake panda panel
panic panther papaya paper paprika parade parcel pardon parent parka parking parlor parsley party pasta pastel
pasture patient patio patriot patrol pattern pause payment peach peanut pearl pebble pecan pedal pelican pencil
penguin penny pension people pepper percent perfect perhaps period person petunia pewter phantom pheasant phone
photo phrase physics piano piccolo pickle picnic pier pigeon pillow pilot pimento pinball pink pioneer piranha
pirate pitcher pizza plain planet plateau player plenty plum plunge plural pocket podium poem poker polar police
polish pollen polygon poncho pond pontoon popcorn poppy popular porch portal poster potato powder prairie praise
prefer prepare present pretzel price primary private process produce profile program project pronoun proof proud
provide prune public pudding pulley pulse puma pumpkin pupil puppet purchase purple pursuit python quail quality
quarry quart queen quench quick quiet quinoa quiver quiz quorum quota rabbit raccoon radar radiator radical radio
radish raffle rafter railway rainbow raisin rally ramp random ranger rapid rascal rattle ravine realize reason rebel
rebuild recall receipt recipe record recruit recycle reef referee refine reflect reform refresh refuge regatta
region regular relax relief rely remain remedy remind remote renew rental repair repeat replace report reptile
republic rescue reserve resin resist respect response result retire retreat return reveal review reward rhino
rhubarb rhyme rhythm rich rifle ripple ritual rival road robin robot robust rodeo roller romance rooster rotate
route rowboat royal rubber ruby rudder ruler runner runway rural safari saffron sailor salad salary salmon salt
salute sandal sapling satchel satin saturn sauce sauna sausage savanna savings sawmill scanner scarf scatter scene
scholar school science scissors scooter score scout screen script scroll seagull seaweed second secret section
security segment seldom select seminar senate senior sequel sequence series sermon service sesame session seven
several shadow shallow shampoo shark shawl sheep shelf sherbet sheriff shield shimmer shine shingle shiver shoe
shoulder shovel shower shrimp shrub shuffle shuttle sibling sierra siesta sign silence silicon silk silver similar
simple siren sister sketch skill skipper skunk skylark slate sled sleeve slice slogan slope small smart smile smoke
smooth snack snake sneaker snorkel snowman soap soccer soda soft soldier solid solo sonar sonata song soprano sorbet
source south souvenir soybean space spaniel sparrow special speech sphere spider spinach spiral spirit splash sponge
sponsor spoon sport spray spread spring sprinkle sprout spruce square squash squid stable stadium staff stage stairs
stamp star station statue steady steam steel stencil step stereo sticker stitch stomach stone stool storage stork
strait strange strategy straw street stretch strict stripe strong studio stumble sturdy style subject subtle suburb
subway success sudden suffix sugar suggest suit sultan summer summit sunday sundial sunset superb supper supply
support supreme surface surgeon surplus survey swan sweet swift swing sword symbol symphony symptom synonym syrup
system tablet tackle tadpole talent tandem tank target tariff tartan tassel taxi teacher teapot teddy telegram
temper tempo tenant tender tennis tent terrace textile texture theme theory thermos thicket thimble thing thorn
thought thread thrifty thrill throat throne thrush thumb thunder thursday tidal tiger time timid tinsel tiny titan
title toaster toddler token tomato tongue tonic tooth topaz total toucan touch tourist toward towel town track
tractor trade traffic trailer tram trapeze treasure treaty tree tremble tribe tribute trilogy trinket trio triumph
trolley trousers trout trumpet trunk trust truth tuba tuesday tugboat tulip tundra tunnel turban turbine turkey
turnip turtle tutor tuxedo twelve twenty twin twist tycoon typhoon ukulele ultra unable uncle uncover under undo
unfold uniform unique unit unknown unless unlock until unusual update uphill upright upset upstairs urchin urgent
useful usher usual utensil utmost utopia vacant vaccine vacuum vague valid valve vampire vanilla vanish vapor vault
vector vehicle velvet vendor venison venture veranda verb verdict verify vessel veteran viaduct vibrant victory
video village vintage violet violin viper virtual virtue visa visible vision visitor visual vital vitamin vivid
voice volley volume voter voucher voyage wagon waist waiter walk walnut walrus waltz wardrobe warm warrior wasabi
washer wasp wave website wedding weekend western whale wharf wheat wheel whether whisker white wicker width wigwam
window winery winter wisdom wise wolf wombat wonder wood world worthy wreath wrestle wrinkle yacht yard year yeast
yogurt young yoyo zebra zenith zephyr zigzag zinc zipper zircon zodiac`;
