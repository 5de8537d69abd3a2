"""Word lists that the prompt templates draw from: written for this project, no data set behind them."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace("\n", " ").split("|") if part.strip())


NAMES = _words("""Ava|Liam|Noah|Mia|Zoe|Ethan|Ella|Jack|Grace|Henry|Isla|Leo|Nora|Oscar|Priya|Quinn|Rosa|Samuel|Tara|Umar|
Vera|Walter|Xavier|Yara|Adam|Bella|Carlos|Diana|Elena|Felix|Gina|Hugo|Ivan|Julia|Karim|Lena|Marco|Nadia|Omar|Paula|Raj|Sofia|
Theo|Uma|Victor|Wendy|Yusuf|Alice|Brian|Chloe|David|Emily|Frank|Hannah|Jacob|Kate|Laura|Mark|Nina|Owen|Peter|Rachel|Steve|
Tina|James|Mary|John|Linda|Robert|Susan|Michael|Karen|George|Amelia|Daniel|Fatima|Mei|Kenji|Aisha|Pedro|Ingrid|Dmitri""")

ITEMS = _words("""apples|books|stickers|pencils|marbles|coins|candies|oranges|stamps|toy cars|balloons|flowers|eggs|cupcakes|
muffins|tickets|seashells|photos|cards|bracelets|sandwiches|bottles|postcards|crayons|erasers|notebooks|buttons|beads|peaches|
pears|bananas|lemons|tomatoes|potatoes|carrots|plants|bricks|tiles|chairs|plates|cups|spoons|shirts|socks|hats|scarves|magazines|
puzzles|blocks|shells|rocks|leaves|acorns|kites|lamps|candles|pies|donuts|pizzas|loaves of bread|jars of jam|bags of rice""")

ANIMALS = _words("""dog|cat|horse|cow|sheep|goat|pig|rabbit|fox|wolf|bear|lion|tiger|elephant|giraffe|zebra|monkey|gorilla|
dolphin|whale|shark|octopus|penguin|owl|eagle|parrot|sparrow|crow|duck|goose|swan|turtle|frog|snake|lizard|crocodile|bee|ant|
butterfly|spider|bat|hedgehog|squirrel|deer|moose|camel|kangaroo|koala|panda|seal|otter|beaver|hamster|goldfish|salmon|crab|
jellyfish|snail|earthworm|peacock|flamingo|cheetah|leopard|hyena|rhinoceros|hippopotamus|chameleon|gecko|ostrich""")

FOODS = _words("""pancakes|tomato soup|chocolate cake|apple pie|fried rice|lasagna|vegetable curry|chicken soup|banana bread|
guacamole|hummus|pizza|omelette|mashed potatoes|fruit salad|pasta with pesto|sourdough bread|lentil soup|tacos|sushi|lemonade|
hot chocolate|green tea|iced coffee|smoothie|oatmeal|granola|scrambled eggs|roasted vegetables|cheesecake|brownies|cookies|
waffles|falafel|paella|ramen|risotto|stir-fried noodles|potato salad|pumpkin soup|garlic bread|meatballs|chili|quiche|
french toast|rice pudding|caesar salad|ratatouille|dumplings|popcorn""")

COUNTRIES = _words("""France|Germany|Italy|Spain|Portugal|Greece|Poland|Sweden|Norway|Finland|Denmark|Iceland|Ireland|
Switzerland|Austria|Hungary|Turkey|Egypt|Morocco|Kenya|Nigeria|South Africa|Ethiopia|Ghana|India|China|Japan|South Korea|
Thailand|Vietnam|Indonesia|Malaysia|Philippines|New Zealand|Canada|Mexico|Brazil|Argentina|Chile|Peru|Colombia|Cuba|Jamaica|
Russia|Ukraine|Israel|Jordan|Iran|Pakistan|Bangladesh|Nepal|Mongolia|the Netherlands|Belgium|Scotland|Croatia|Romania""")

CITIES = _words("""Paris|London|Rome|Berlin|Madrid|Lisbon|Athens|Vienna|Prague|Budapest|Amsterdam|Brussels|Stockholm|Oslo|
Copenhagen|Helsinki|Dublin|Edinburgh|Moscow|Istanbul|Cairo|Marrakech|Nairobi|Cape Town|Lagos|Mumbai|Delhi|Beijing|Shanghai|
Tokyo|Kyoto|Seoul|Bangkok|Singapore|Hanoi|Jakarta|Sydney|Melbourne|Auckland|Toronto|Vancouver|Montreal|New York|Chicago|
San Francisco|Los Angeles|Boston|Miami|Mexico City|Havana|Lima|Bogota|Buenos Aires|Santiago|Rio de Janeiro|Dubai|Jerusalem""")

SCIENCE = _words("""gravity|electricity|magnetism|evolution|natural selection|the water cycle|the carbon cycle|cell division|
DNA|RNA|enzymes|the immune system|vaccines|antibiotics|the nervous system|the digestive system|the human heart|the lungs|the
kidneys|the human brain|hormones|genes|mutations|ecosystems|food chains|biodiversity|plate tectonics|earthquakes|volcanoes|
tsunamis|hurricanes|tornadoes|lightning|rainbows|clouds|tides|ocean currents|glaciers|fossils|rocks and minerals|soil|erosion|
the solar system|black holes|stars|galaxies|comets|asteroids|the Big Bang|eclipses|the seasons|Mars|Jupiter|Saturn|the Moon|the
Sun|atoms|molecules|chemical bonds|acids and bases|oxidation|combustion|states of matter|heat transfer|sound waves|light waves|
refraction|reflection|lenses|lasers|radioactivity|nuclear fusion|nuclear fission|quantum mechanics|relativity|entropy|energy
conservation|friction|inertia|momentum|pressure|density|buoyancy|simple machines|levers|pulleys|osmosis|diffusion|respiration|
fermentation|pollination|germination|migration|hibernation|camouflage|symbiosis|coral reefs|rainforests|deserts|tundra|wetlands|
the ozone layer|acid rain|the greenhouse effect|recycling|composting|bacteria|viruses|fungi|protists|stem cells|cloning|genetic
engineering|blood types|allergies|digestion|muscles|bones|skin|vision|hearing|taste|memory|dreams|circadian rhythms""")

TECHNOLOGY = _words("""artificial intelligence|neural networks|deep learning|computer vision|natural language processing|
robotics|blockchain|cryptocurrency|cloud computing|the Internet|Wi-Fi|Bluetooth|GPS|search engines|social media|encryption|
computer viruses|firewalls|operating systems|databases|compilers|programming languages|algorithms|open source software|virtual
reality|augmented reality|3D printing|drones|electric cars|self-driving cars|solar panels|wind turbines|hydroelectric dams|
nuclear power plants|batteries|fuel cells|semiconductors|transistors|microprocessors|hard drives|touchscreens|digital cameras|
smartphones|satellites|rockets|space telescopes|airplanes|helicopters|submarines|steam engines|internal combustion engines|
microwave ovens|air conditioners|washing machines|elevators|bridges|skyscrapers|radar|sonar|barcodes|QR codes|email|video
streaming|big data|the Internet of Things|quantum computers|supercomputers|version control|unit testing|web browsers|cookies on
websites|passwords|two-factor authentication|machine translation|speech recognition|recommendation systems|chatbots""")

HISTORY = _words("""the Roman Empire|Ancient Greece|Ancient Egypt|the Middle Ages|the Renaissance|the Reformation|the French
Revolution|the American Revolution|the American Civil War|World War I|World War II|the Cold War|the fall of the Berlin Wall|the
Great Depression|the Black Death|the Crusades|the Silk Road|the Viking Age|the Mongol Empire|the Ottoman Empire|the British
Empire|the Spanish Armada|the discovery of America|the slave trade|the civil rights movement|the suffrage movement|the space race|
the Moon landing|the Apollo program|the Russian Revolution|the Chinese Revolution|the Meiji Restoration|the partition of India|
apartheid|the Enlightenment|the Scientific Revolution|the printing press|the Gold Rush|the Declaration of Independence|the Magna
Carta|the Treaty of Versailles|the United Nations|the European Union|the Cuban Missile Crisis|the Vietnam War|the Korean War|the
Boston Tea Party|the Battle of Waterloo|the Hundred Years' War|the Aztec Empire|the Inca Empire|the Maya civilization|the Great
Wall of China|the pyramids of Giza|the Trojan War|the Persian Empire|Mesopotamia|the Phoenicians|the Bronze Age|the Stone Age""")

PEOPLE = _words("""Albert Einstein|Isaac Newton|Charles Darwin|Galileo Galilei|Nikola Tesla|Thomas Edison|Leonardo da Vinci|
Michelangelo|Vincent van Gogh|Pablo Picasso|Claude Monet|Frida Kahlo|William Shakespeare|Jane Austen|Charles Dickens|Mark Twain|
Leo Tolstoy|Ernest Hemingway|Virginia Woolf|Homer|Plato|Aristotle|Socrates|Confucius|Buddha|Julius Caesar|Cleopatra|Alexander the
Great|Napoleon Bonaparte|Queen Victoria|Elizabeth I|Abraham Lincoln|George Washington|Winston Churchill|Mahatma Gandhi|Nelson
Mandela|Martin Luther King Jr.|Rosa Parks|Mother Teresa|Ada Lovelace|Alan Turing|Grace Hopper|Katherine Johnson|Rosalind Franklin|
Louis Pasteur|Alexander Fleming|Gregor Mendel|Johannes Kepler|Copernicus|Stephen Hawking|Richard Feynman|Niels Bohr|Max Planck|
Neil Armstrong|Yuri Gagarin|Amelia Earhart|Marco Polo|Christopher Columbus|Ferdinand Magellan|Joan of Arc|Genghis Khan|Mozart|
Beethoven|Bach|Chopin|Florence Nightingale|Anne Frank|Malala Yousafzai|Archimedes|Euclid|Pythagoras|Sigmund Freud|Karl Marx""")

BOOKS = _words("""Hamlet|Macbeth|Othello|King Lear|A Midsummer Night's Dream|Pride and Prejudice|Sense and Sensibility|Great
Expectations|Oliver Twist|A Tale of Two Cities|A Christmas Carol|Moby-Dick|The Great Gatsby|To Kill a Mockingbird|1984|Animal
Farm|Brave New World|Frankenstein|Dracula|Jane Eyre|Wuthering Heights|The Odyssey|The Iliad|Don Quixote|War and Peace|Anna
Karenina|Crime and Punishment|Les Miserables|The Count of Monte Cristo|Treasure Island|Robinson Crusoe|Gulliver's Travels|Alice in
Wonderland|Peter Pan|Pinocchio|The Jungle Book|The Little Prince|The Hobbit|The Lord of the Rings|Cinderella|Snow White|Little Red
Riding Hood|Hansel and Gretel|The Ugly Duckling|Beauty and the Beast|Sleeping Beauty|The Three Little Pigs|Jack and the Beanstalk""")

SKILLS = _words("""play the guitar|play the piano|cook|bake bread|draw portraits|paint with watercolors|swim|dance|ride a
bicycle|drive a car|play chess|juggle|knit|sew|garden|take better photographs|write a novel|write poetry|speak in public|meditate|
do yoga|run a marathon|lift weights|code in Python|build a website|edit videos|use a spreadsheet|manage money|invest in stocks|
negotiate|lead a team|manage time|take notes|memorize vocabulary|solve a Rubik's cube|fold origami|train a dog|raise chickens|brew
beer|make cheese|build furniture|fix a bicycle|change a tire|start a business|write a resume|learn mathematics|sing|play the
violin|play tennis|surf|ski|climb|fish|sail|make pottery|do calligraphy|type faster|read faster|study for exams|make friends""")

GOALS = _words("""save money|lose weight|reduce stress|eat healthier|stay motivated|be more productive|wake up earlier|build good
habits|quit smoking|drink more water|exercise regularly|improve my memory|improve my posture|improve my handwriting|become more
confident|overcome shyness|deal with anger|handle criticism|stop procrastinating|focus while studying|prepare for an exam|write a
good essay|find a job|ask for a raise|make new friends|keep in touch with old friends|organize my desk|clean my kitchen|declutter
my home|reduce my electricity bill|save water|recycle at home|grow tomatoes|take care of houseplants|train my puppy|choose a
laptop|learn programming|plan a vacation|pack a suitcase|travel cheaply|cook for one person|host a dinner party|raise bilingual
children|help my child with homework|limit screen time|protect my privacy online|create strong passwords|avoid scams|back up my
data|speed up my computer|start a blog|read more books|write in a journal|learn to relax|get over jet lag|prevent colds|treat a
sunburn|stop hiccups|remove a coffee stain|get rid of ants|keep bread fresh|sharpen a knife|iron a shirt|tie a tie|write a speech""")

FEELINGS = _words("""sad|lonely|stressed|bored|tired|angry|anxious|overwhelmed|homesick|jealous|guilty|disappointed|excited|
confused|unmotivated|insecure|grateful|proud|frustrated|worried|hopeful|burned out|shy|curious""")

EVENTS = _words("""my exam|a presentation at work|my first day at a new school|my wedding|a long flight|a visit to the dentist|a
move to another city|my driving test|a first date|a family reunion|a difficult conversation with my boss|my sister's graduation|a
surgery|a piano recital|the end of the holidays|a marathon|becoming a parent|losing my job|my retirement|an argument with a friend""")

JOBS = _words("""teacher|nurse|doctor|engineer|lawyer|carpenter|plumber|electrician|chef|waiter|farmer|fisherman|pilot|sailor|
astronaut|soldier|police officer|firefighter|librarian|journalist|photographer|painter|musician|actor|dancer|writer|poet|
translator|scientist|biologist|chemist|physicist|mathematician|historian|archaeologist|geologist|architect|designer|programmer|
data scientist|accountant|banker|salesperson|cashier|manager|secretary|gardener|florist|baker|butcher|tailor|hairdresser|dentist|
veterinarian|pharmacist|psychologist|social worker|bus driver|taxi driver|mechanic|detective|judge|magician|clown|beekeeper""")

PLACES = _words("""a small village|a haunted house|a desert island|a space station|an old library|a busy market|a quiet forest|a
mountain cabin|a train station|a castle|a circus|a hospital|a school|an abandoned factory|a lighthouse on a cliff|a submarine|a
jungle|a frozen lake|a bakery|a museum|a zoo|an airport|a farm|a bookshop|a city at night|a river bank|a beach|a cave|a garden|a
rooftop|an underground city|a snowy street|a crowded bus|a harbor|a vineyard|a theater|a monastery|a football stadium""")

OBJECTS = _words("""an umbrella|a mirror|a key|a clock|a map|a letter|a ring|a violin|a bicycle|a red balloon|an old camera|a music
box|a diary|a suitcase|a lantern|a compass|a telescope|a painting|a pair of shoes|a feather|a coin|a chess set|a teapot|a scarf|a
wooden box|a snow globe|a typewriter|a kite|a paper boat|a golden watch|a broken robot|a strange seed|a silver whistle""")

PRODUCTS = _words("""a wireless headphone|a smart watch|an electric bike|a coffee machine|a yoga mat|a standing desk|an office
chair|a sleeping bag|a camping tent|a water bottle|a running shoe|a raincoat|a wool sweater|a leather wallet|a desk lamp|a mechanical
keyboard|a gaming mouse|a portable charger|a bluetooth speaker|a vacuum cleaner|a blender|an air fryer|a cast iron pan|a chef's
knife|a scented candle|a face cream|a shampoo bar|a toothbrush|a picture book|a board game|a jigsaw puzzle|a teddy bear|a garden
hose|a bird feeder|a dog leash|a cat tree|a travel pillow|a suitcase|a phone case|a pair of sunglasses|a lunch box|a notebook""")

ABSTRACT = _words("""happiness|freedom|justice|friendship|love|courage|honesty|patience|kindness|loyalty|wisdom|creativity|
curiosity|success|failure|beauty|truth|time|hope|fear|anger|grief|forgiveness|gratitude|generosity|humility|ambition|discipline|
democracy|equality|peace|war|poverty|education|tradition|progress|culture|religion|science|art|music|poetry|nature|solitude|
memory|imagination|responsibility|trust|power|money|fame|work|leisure|home|childhood|old age|death|silence|laughter|luck""")

ECONOMY = _words("""supply and demand|unemployment|gross domestic product|interest rates|taxes|tariffs|free trade|monopolies|
recessions|the stock market|bonds|mutual funds|insurance|mortgages|credit cards|budgeting|retirement savings|exchange rates|central
banks|globalization|outsourcing|minimum wage|labor unions|entrepreneurship|venture capital|marketing|branding|customer service|
supply chains|e-commerce|the gig economy|universal basic income|public debt|opportunity cost|comparative advantage|compound
interest|depreciation|cash flow|accounting|microfinance|fair trade|sustainability|urbanization|immigration|population growth""")

ARTS = _words("""Impressionism|Cubism|Surrealism|Baroque music|jazz|blues|rock and roll|hip hop|classical music|opera|ballet|
theater|film noir|documentary films|animation|photography|sculpture|pottery|architecture|Gothic cathedrals|street art|graffiti|
calligraphy|haiku|sonnets|novels|short stories|fairy tales|myths|fables|comics|manga|fashion design|graphic design|typography|
folk music|musical instruments|the orchestra|the guitar|the piano|the violin|tango|flamenco|origami|embroidery|stained glass""")

SPORTS = _words("""soccer|basketball|tennis|volleyball|baseball|cricket|rugby|hockey|golf|swimming|running|cycling|skiing|
snowboarding|surfing|sailing|rowing|boxing|judo|karate|fencing|archery|gymnastics|athletics|climbing|hiking|badminton|table tennis|
chess|the Olympic Games|the World Cup|the Tour de France|marathons|triathlons|yoga|dance|skating|horse riding|diving""")

LANGUAGES = _words(
    """Spanish|French|German|Italian|Portuguese|Dutch|Latin|Swedish|Polish|Russian|Japanese|Chinese|Turkish"""
)

PROGRAMMING = _words(
    """Python|JavaScript|Java|C|C++|C#|Go|Rust|Ruby|PHP|TypeScript|Bash|SQL|Kotlin|Swift|R"""
)

CODE_CONCEPTS = _words("""recursion|closures|decorators|generators|iterators|list comprehensions|dictionaries|sets|tuples|lambda
functions|classes|inheritance|polymorphism|encapsulation|abstract classes|interfaces|exceptions|context managers|threads|processes|
async and await|callbacks|promises|event loops|hash tables|linked lists|binary trees|heaps|queues|stacks|graphs|tries|arrays|
strings|pointers|references|garbage collection|memory leaks|time complexity|space complexity|big O notation|dynamic programming|
greedy algorithms|divide and conquer|backtracking|depth-first search|breadth-first search|Dijkstra's algorithm|quick sort|merge
sort|heap sort|insertion sort|selection sort|hashing|caching|regular expressions|unit tests|mocking|debugging|logging|type hints|
modules|packages|virtual environments|REST APIs|JSON|XML|HTTP|SQL joins|indexes in databases|transactions|normalization|primary
keys|foreign keys|git branches|merge conflicts|continuous integration|containers|design patterns|the singleton pattern|the observer
pattern|the factory pattern|dependency injection|functional programming|object-oriented programming|immutability|side effects""")

PYTHON_TASKS = _words("""reverses a string|reverses the words in a sentence|counts the words in a text|counts how often each
character occurs in a string|counts how often each word occurs in a text|capitalizes the first letter of every word|removes all
vowels from a string|removes all spaces from a string|removes punctuation from a text|checks whether two strings are anagrams|finds
the first non-repeating character in a string|checks whether a string contains only digits|converts a string to snake_case|converts
snake_case to camelCase|encodes a string with a Caesar cipher|compresses a string with run-length encoding|decodes a run-length
encoded string|finds the longest common prefix of a list of strings|finds the longest common subsequence of two strings|computes the
edit distance between two strings|checks whether brackets in a string are balanced|returns all permutations of a string|returns all
substrings of a string|replaces every occurrence of one word by another|finds the maximum of a list without using max|finds the
second largest number in a list|finds the smallest missing positive integer|computes the sum of a list recursively|computes the
product of all numbers in a list|computes the mean and the median of a list|computes the mode of a list|computes the standard
deviation of a list|computes the running total of a list|rotates a list by k positions|flattens a nested list|splits a list into
chunks of size n|interleaves two lists|finds the intersection of two lists|finds the union of two lists|finds the difference of two
lists|counts the even numbers in a list|filters the odd numbers from a list|squares every number in a list|sorts a list of tuples by
the second element|sorts a dictionary by its values|inverts a dictionary|merges two dictionaries|groups a list of words by their
first letter|groups a list of words by length|finds all pairs in a list that add up to a target|finds the longest increasing
subsequence|finds the maximum subarray sum|moves all zeros to the end of a list|removes consecutive duplicates from a list|finds
duplicates in a list|checks whether a list is sorted|shuffles a list|picks a random element from a list|computes the dot product of
two vectors|multiplies two matrices|computes the determinant of a 2x2 matrix|rotates a matrix by 90 degrees|prints a matrix in spiral
order|creates an identity matrix|checks whether a number is prime|returns all prime factors of a number|computes the factorial of a
number|computes the greatest common divisor of two numbers|computes the least common multiple of two numbers|checks whether a number
is a perfect square|checks whether a number is a perfect number|checks whether a number is an Armstrong number|checks whether a year
is a leap year|computes the sum of the digits of a number|reverses the digits of a number|converts a decimal number to binary|converts
a binary string to a decimal number|converts a number to hexadecimal|converts an integer to a Roman numeral|converts Celsius to
Fahrenheit|converts miles to kilometers|converts seconds to hours, minutes and seconds|computes compound interest|computes the area
of a circle|computes the distance between two points|computes the hypotenuse of a right triangle|solves a quadratic equation|computes
the power of a number without using the ** operator|computes the square root with Newton's method|generates the first n rows of
Pascal's triangle|generates the Collatz sequence|generates a multiplication table|generates a random password|simulates rolling two
dice|simulates a coin toss|plays rock, paper, scissors|plays a number guessing game|plays tic-tac-toe|implements a simple calculator|
implements linear search|implements insertion sort|implements selection sort|implements merge sort|implements quick sort|implements
heap sort|implements counting sort|implements depth-first search on a graph|implements breadth-first search on a graph|finds the
shortest path in a graph|checks whether a graph has a cycle|computes the height of a binary tree|traverses a binary tree in order|
inserts a node into a binary search tree|checks whether a binary tree is balanced|reverses a linked list|finds the middle of a linked
list|detects a cycle in a linked list|solves the Tower of Hanoi|solves the knapsack problem|solves the coin change problem|solves the
N-Queens problem|solves a Sudoku|counts the ways to climb n stairs|reads a text file and counts its lines|reads a JSON file|writes a
dictionary to a JSON file|writes a list of dictionaries to a CSV file|lists all files in a folder|finds the largest file in a folder|
renames all files in a folder|copies a file|downloads a web page|parses a date string|computes the number of days between two dates|
prints the current date and time|computes a person's age from the birth date|validates an email address|validates a phone number|
validates a password|extracts all links from an HTML page|extracts all numbers from a text|parses a log file|sends an email|retries a
function when it fails|caches the results of a function|runs a function in a thread|measures memory usage|logs messages to a file|
parses command line arguments|connects to an SQLite database|creates a table in SQLite|inserts rows into a database|plots a line
chart|draws a histogram|computes a moving average|normalizes a list of numbers|one-hot encodes a list of labels|computes the
accuracy of predictions|splits data into training and test sets|implements linear regression|implements k-nearest neighbors|
implements k-means clustering|computes cosine similarity|computes TF-IDF|tokenizes a sentence|counts n-grams in a text|translates
text to Morse code|converts text to Pig Latin|prints a pyramid of stars|prints a diamond pattern|prints the FizzBuzz sequence|prints
a calendar month|draws a chessboard in text|checks whether a point lies in a rectangle|checks whether two rectangles overlap|finds the
day of the week for a date|rounds a number to two decimals|swaps two variables|clamps a number to a range|maps a score to a grade""")

CLASSES = _words("""a bank account|a queue|a linked list|a binary search tree|a priority queue|a deck of cards|a dice|a rectangle|a
circle|a triangle|a point in 2D|a vector|a matrix|a fraction|a complex number|a polynomial|a student|a teacher|a school|a library|a
book|a car|a parking lot|a shopping cart|an inventory|an employee|a company|a hotel|a restaurant menu|a to-do list|a timer|a
calendar|a contact list|a phone book|a playlist|a video game character|a chess board|a tic-tac-toe board|a graph|a hash map|an LRU
cache|a logger|a configuration file|a temperature sensor|a traffic light|a vending machine|an elevator|a robot|a blog post|a user
account|a message queue|a rate limiter|an event system|a state machine|a simple neural network|a text editor|a file manager""")

SQL_TABLES = _words("""employees|customers|orders|products|students|courses|books|authors|movies|flights|hotels|invoices|payments|
suppliers|departments|cities|patients|appointments|songs|albums|accounts|transactions|tickets|reviews|users|posts|comments""")
