package radiator;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetMapValue;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Length;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.OctetLength;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.DateTimeUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.StringContains;
import org.apache.spark.sql.sources.StringEndsWith;
import org.apache.spark.sql.sources.StringStartsWith;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * An optimizer rule: a scan of the Python data source "radiator" reads only the columns that its query uses, and gets the
 * filters of the query.
 *
 * Spark gives a Python data source neither the columns nor, safely, the filters: it has one reader for each DataFrame, and
 * keeps the filters of one query for the next. This rule replaces the scan of each query by a scan with a reader of its
 * own. The schema of that reader has the columns that the query uses; the metadata of its first column has the filters
 * and the ends of the log as of the first query over the DataFrame. radiator/spark/pruned.py reads both.
 *
 * The rule is compiled in the driver's JVM when the format is registered (radiator/spark/scan_rule.py). Executors need
 * only ColumnarReaderFactory. Whatever the rule does not recognise stays as Spark planned it.
 */
public final class ScanRule extends Rule {
    private static final String FORMAT = "radiator";
    private static final int PLANS_MAX = 64;  // stored plans of a DataFrame

    private final StructType messages;  // the columns of the source, without structs
    private final StructType deliveries;  // its columns with the option table=deliveries
    private final String jar;  // has the classes that executors need
    private final Map firstPlans = new WeakHashMap();  // PythonDataSourceV2 of a DataFrame -> Plans

    public ScanRule(String messages, String deliveries, String jar) {
        this.messages = (StructType) DataType.fromJson(messages);
        this.deliveries = (StructType) DataType.fromJson(deliveries);
        this.jar = jar;
    }

    /** Adds the rule to a session, and the jar to its executors, once. */
    public void install(SparkSession session) {
        SparkContext context = session.sparkContext();
        if (!context.listJars().mkString("\n").contains(new java.io.File(jar).getName())) {
            context.addJar(jar);
        }
        ExperimentalMethods methods = session.experimental();
        List rules = list(methods.extraOptimizations());
        for (int i = 0; i < rules.size(); i++) {
            if (rules.get(i).getClass().getName().equals(ScanRule.class.getName())) {
                return;
            }
        }
        rules.add(this);
        methods.extraOptimizations_$eq(seq(rules));
    }

    public TreeNode apply(TreeNode plan) {
        return walk((LogicalPlan) plan);
    }

    private LogicalPlan walk(LogicalPlan plan) {
        LogicalPlan found = null;
        try {
            found = replaced(plan);
        } catch (Exception error) {
            found = null;  // an unknown version of Spark: the query reads all columns
        } catch (LinkageError error) {
            found = null;
        }
        if (found != null) {
            return found;
        }
        List children = list(plan.children());
        boolean changed = false;
        for (int i = 0; i < children.size(); i++) {
            LogicalPlan child = (LogicalPlan) children.get(i);
            LogicalPlan made = walk(child);
            changed |= made != child;
            children.set(i, made);
        }
        return changed ? (LogicalPlan) plan.withNewChildren(seq(children)) : plan;
    }

    /** Returns the plan with a pruned scan, or null where the plan is not a projection of a scan of this format. */
    private LogicalPlan replaced(LogicalPlan plan) throws Exception {
        Aggregate aggregate = null;
        Project project = null;
        LogicalPlan below = plan;
        if (below instanceof Aggregate && ((Aggregate) below).child() instanceof Project) {
            aggregate = (Aggregate) below;
            below = aggregate.child();
        }
        if (below instanceof Project) {
            project = (Project) below;
            below = project.child();
        }
        if (aggregate != null && !onlyAttributes(project.projectList()) && !onlyCounts(aggregate)) {
            return null;  // the projection itself is the next node
        }
        List conditions = new ArrayList();
        boolean deterministic = true;
        while (below instanceof org.apache.spark.sql.catalyst.plans.logical.Filter) {
            org.apache.spark.sql.catalyst.plans.logical.Filter filter =
                (org.apache.spark.sql.catalyst.plans.logical.Filter) below;
            deterministic &= filter.condition().deterministic();
            List own = new ArrayList();
            split(filter.condition(), own);
            conditions.addAll(0, own);  // the lower filter comes first
            below = filter.child();
        }
        if (!(below instanceof DataSourceV2ScanRelation)) {
            return null;
        }
        DataSourceV2ScanRelation scanned = (DataSourceV2ScanRelation) below;
        if (!(scanned.scan() instanceof PythonScan) || scanned.scan() instanceof PrunedScan) {
            return null;
        }
        PythonScan scan = (PythonScan) scanned.scan();
        if (!FORMAT.equals(field(PythonScan.class, scan, "shortName"))) {
            return null;
        }
        CaseInsensitiveStringMap options = (CaseInsensitiveStringMap) field(PythonScan.class, scan, "options");
        if (option(options, "pushdown", "true")) {
            return null;  // Spark has removed the filters from the plan
        }
        StructType table = option(options, "table", "deliveries") ? deliveries : messages;
        if (!known(scan.readSchema(), table)) {
            return null;
        }
        return pruned(plan, aggregate, project, conditions, deterministic, scanned, scan, table);
    }

    private static boolean option(CaseInsensitiveStringMap options, String wanted, String is) {
        java.util.Iterator each = options.entrySet().iterator();
        while (each.hasNext()) {
            Map.Entry option = (Map.Entry) each.next();
            String name = ((String) option.getKey()).toLowerCase().replace("_", "");
            String value = ((String) option.getValue()).trim().toLowerCase();
            if (name.equals(wanted) && value.equals(is)) {
                return true;
            }
        }
        return false;
    }

    /** Returns true for columns of the table, and struct columns of schemas. The source reports other columns and types when Spark plans the query. */
    private static boolean known(StructType schema, StructType table) {
        List names = Arrays.asList(table.fieldNames());
        StructField[] fields = schema.fields();
        List seen = new ArrayList();
        for (int i = 0; i < fields.length; i++) {
            int at = names.indexOf(fields[i].name());
            if (seen.contains(fields[i].name())) {
                return false;
            }
            seen.add(fields[i].name());
            if (at < 0 && fields[i].dataType() instanceof StructType) {
                continue;
            }
            if (at < 0) {
                return false;
            }
            StructField column = table.fields()[at];
            if (!column.dataType().equals(fields[i].dataType()) || (column.nullable() && !fields[i].nullable())) {
                return false;
            }
        }
        return fields.length > 0;
    }

    private LogicalPlan pruned(
        LogicalPlan plan, Aggregate aggregate, Project project, List conditions, boolean deterministic,
        DataSourceV2ScanRelation scanned, PythonScan scan, StructType table
    ) throws Exception {
        List output = list(scanned.output());
        List filters = new ArrayList();
        List rest = new ArrayList();
        for (int i = 0; i < conditions.size(); i++) {
            Expression condition = (Expression) conditions.get(i);
            String said = deterministic ? described(condition, table == deliveries) : null;
            if (said != null) {
                filters.add(said);
            }
            if (said == null || said.charAt(0) == '?') {
                rest.add(condition);
            }
        }
        List used = new ArrayList(rest);  // the expressions that use columns
        // the projection passes columns unchanged to the aggregate
        boolean passed = aggregate != null && onlyAttributes(project.projectList());
        if (passed) {
            used.addAll(list(aggregate.groupingExpressions()));
            used.addAll(list(aggregate.aggregateExpressions()));
        } else if (project != null) {
            used.addAll(list(project.projectList()));
        } else {
            used.addAll(output);
        }
        Parts parts = new Parts(output, used);
        List columns = new ArrayList();
        for (int i = 0; i < output.size(); i++) {
            Attribute column = (Attribute) output.get(i);
            if (parts.whole(column)) {
                columns.add(column);
            }
        }
        columns.addAll(parts.made());
        Attribute rows = null;
        String each = table == deliveries ? "record_offset" : "offset";  // a column with a value for each row
        if (deterministic && aggregate != null && onlyCounts(aggregate) && countable(project, columns)) {
            rows = attribute("rows", DataTypes.LongType, false, part("rows", "", each));
            columns.add(rows);
        } else if (columns.isEmpty()) {  // such as sum(1): a row for each record, and nothing in it
            columns.add(attribute("count", DataTypes.NullType, true, part("count", "", each)));
        }
        LogicalPlan made = relation(scanned, new PrunedScan(scan, schema(columns, filters)), columns);
        if (!rest.isEmpty()) {
            Expression all = parts.rewritten((Expression) rest.get(0));
            for (int i = 1; i < rest.size(); i++) {
                all = new And(all, parts.rewritten((Expression) rest.get(i)));
            }
            made = new org.apache.spark.sql.catalyst.plans.logical.Filter(all, made);
        }
        LogicalPlan above = aggregate != null ? aggregate : plan;
        if (passed) {
            List kept = new ArrayList();
            for (int i = 0; i < columns.size(); i++) {
                Attribute column = (Attribute) columns.get(i);
                if (column.dataType() != DataTypes.NullType) {
                    kept.add(column);
                }
            }
            made = new Project(seq(kept), made);
            above = (LogicalPlan) aggregate.mapExpressions(parts);
        } else if (project != null) {
            List kept = new ArrayList();
            List before = list(project.projectList());
            for (int i = 0; i < before.size(); i++) {
                kept.add(parts.rewritten((Expression) before.get(i)));
            }
            if (rows != null) {
                kept.add(rows);
            }
            made = new Project(seq(kept), made);
        }
        if (aggregate == null) {
            return made;
        }
        if (rows != null) {
            above = (LogicalPlan) above.mapExpressions(new Summed(rows));
        }
        return (LogicalPlan) above.withNewChildren(seq(one(made)));
    }

    /** Returns true for an aggregate that needs the number of equal rows and nothing else: all its functions are count(*). */
    private static boolean onlyCounts(Aggregate aggregate) {
        List found = list(aggregate.aggregateExpressions());
        for (int i = 0; i < found.size(); i++) {
            if (!onlyCounts((Expression) found.get(i))) {
                return false;
            }
        }
        return true;
    }

    private static boolean onlyCounts(Expression expression) {
        if (expression instanceof AggregateExpression) {
            return isCount(expression);
        }
        List children = list(expression.children());
        for (int i = 0; i < children.size(); i++) {
            if (!onlyCounts((Expression) children.get(i))) {
                return false;
            }
        }
        return true;
    }

    /** Returns true if equal rows of a scan remain equal, and the reader can compare them: it cannot compare arrays, maps and structs. */
    private static boolean countable(Project project, List columns) {
        List projected = list(project.projectList());
        for (int i = 0; i < projected.size(); i++) {
            if (!((Expression) projected.get(i)).deterministic()) {
                return false;
            }
        }
        for (int i = 0; i < columns.size(); i++) {
            DataType type = ((Attribute) columns.get(i)).dataType();
            if (type instanceof ArrayType || type instanceof MapType || type instanceof StructType) {
                return false;
            }
        }
        return true;
    }

    private static boolean isCount(Expression expression) {
        if (!(expression instanceof AggregateExpression)) {
            return false;
        }
        AggregateExpression of = (AggregateExpression) expression;
        if (of.isDistinct() || !of.filter().isEmpty() || !(of.aggregateFunction() instanceof Count)) {
            return false;
        }
        List counted = list(of.aggregateFunction().children());
        return counted.size() == 1 && counted.get(0) instanceof Literal && ((Literal) counted.get(0)).value() != null;
    }

    /** Replaces each count(*) by the sum of a column, which has the number of equal rows. */
    private static final class Summed extends scala.runtime.AbstractFunction1 {
        private final Expression rows;

        Summed(Expression rows) {
            this.rows = rows;
        }

        public Object apply(Object expression) {
            Expression of = (Expression) expression;
            if (isCount(of)) {
                List values = new ArrayList();
                values.add(of.withNewChildren(seq(one(new Sum(rows)))));
                values.add(Literal$.MODULE$.apply(Long.valueOf(0)));  // the sum of no rows is null
                return new Coalesce(seq(values));
            }
            List children = list(of.children());
            for (int i = 0; i < children.size(); i++) {
                children.set(i, apply(children.get(i)));
            }
            return of.withNewChildren(seq(children));
        }
    }

    /** Replaces the scan and the output of a relation, whatever other fields this version of Spark has. */
    private static LogicalPlan relation(DataSourceV2ScanRelation scanned, PrunedScan scan, List columns)
        throws Exception {
        Object[] values = new Object[scanned.productArity()];
        for (int i = 0; i < values.length; i++) {
            String name = scanned.productElementName(i);
            values[i] = name.equals("scan") ? scan : name.equals("output") ? seq(columns) : scanned.productElement(i);
        }
        java.lang.reflect.Constructor[] all = DataSourceV2ScanRelation.class.getConstructors();
        for (int i = 0; i < all.length; i++) {
            if (all[i].getParameterTypes().length == values.length) {
                return (LogicalPlan) all[i].newInstance(values);
            }
        }
        throw new IllegalStateException("DataSourceV2ScanRelation");
    }

    // --- filters ----------------------------------------------------------------------------------------------------

    private static void split(Expression condition, List into) {
        if (condition instanceof And) {
            split(((And) condition).left(), into);
            split(((And) condition).right(), into);
        } else {
            into.add(condition);
        }
    }

    /**
     * Returns a condition as text for radiator/spark/pruned.py, or null if it cannot be converted. It begins with "!" if
     * the reader applies it exactly, and with "?" if Spark must test the rows again.
     */
    private String described(Expression condition, boolean ofDeliveries) {
        scala.Option translated = DataSourceStrategy$.MODULE$.translateFilter(condition, false);
        if (translated.isEmpty()) {
            return null;
        }
        Filter filter = (Filter) translated.get();
        boolean negated = filter instanceof Not;
        Filter inner = negated ? ((Not) filter).child() : filter;
        String[] names = inner.references();
        if (names.length != 1) {
            return null;
        }
        String column = names[0];
        boolean text = column.equals("destination") || column.equals("partition");
        boolean number = column.equals("offset") || column.equals("receive_ns") || column.equals("receive_time");
        if (ofDeliveries) {  // the rows of one log, which has no index of them
            text = deliveries.apply(column).dataType() == DataTypes.StringType;
            number = false;
        }
        List values = new ArrayList();
        String kind = null;
        if (inner instanceof IsNotNull) {
            return (text || number) && !negated ? "!" + json("IsNotNull", column, negated, values) : null;
        } else if (inner instanceof EqualTo) {
            kind = "EqualTo";
            values.add(((EqualTo) inner).value());
        } else if (text && inner instanceof In) {
            kind = "In";
            values.addAll(Arrays.asList(((In) inner).values()));
        } else if (text && inner instanceof StringStartsWith) {
            kind = "StringStartsWith";
            values.add(((StringStartsWith) inner).value());
        } else if (text && inner instanceof StringEndsWith) {
            kind = "StringEndsWith";
            values.add(((StringEndsWith) inner).value());
        } else if (text && inner instanceof StringContains) {
            kind = "StringContains";
            values.add(((StringContains) inner).value());
        } else if (number && inner instanceof GreaterThan) {
            kind = "GreaterThan";
            values.add(((GreaterThan) inner).value());
        } else if (number && inner instanceof GreaterThanOrEqual) {
            kind = "GreaterThanOrEqual";
            values.add(((GreaterThanOrEqual) inner).value());
        } else if (number && inner instanceof LessThan) {
            kind = "LessThan";
            values.add(((LessThan) inner).value());
        } else if (number && inner instanceof LessThanOrEqual) {
            kind = "LessThanOrEqual";
            values.add(((LessThanOrEqual) inner).value());
        }
        if (kind == null || (number && negated)) {
            return null;
        }
        for (int i = 0; i < values.size(); i++) {
            Object value = values.get(i);
            if (value instanceof java.time.Instant) {
                value = Long.valueOf(DateTimeUtils$.MODULE$.instantToMicros((java.time.Instant) value));
            } else if (value instanceof java.sql.Timestamp) {
                value = Long.valueOf(DateTimeUtils$.MODULE$.fromJavaTimestamp((java.sql.Timestamp) value));
            }
            if (!(number ? value instanceof Long : value instanceof String)) {
                return null;
            }
            values.set(i, value);
        }
        if (text || number) {
            return "!" + json(kind, column, negated, values);
        }
        return column.equals("message_id") && !negated ? "?" + json(kind, column, negated, values) : null;
    }

    private static String json(String kind, String column, boolean negated, List values) {
        StringBuilder made = new StringBuilder("[" + quoted(kind) + "," + quoted(column) + "," + negated);
        for (int i = 0; i < values.size(); i++) {
            Object value = values.get(i);
            made.append(",").append(value instanceof String ? quoted((String) value) : value.toString());
        }
        return made.append("]").toString();
    }

    private static String quoted(String text) {
        StringBuilder made = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char each = text.charAt(i);
            if (each == '"' || each == '\\' || each < ' ') {
                String code = Integer.toHexString(0x10000 + each);
                made.append("\\u").append(code.substring(1));
            } else {
                made.append(each);
            }
        }
        return made.append("\"").toString();
    }

    // --- columns ----------------------------------------------------------------------------------------------------

    private static StructType schema(List columns, List filters) {
        StructField[] fields = new StructField[columns.size()];
        for (int i = 0; i < fields.length; i++) {
            Attribute column = (Attribute) columns.get(i);
            Metadata metadata = column.metadata();
            if (i == 0) {
                String[] texts = (String[]) filters.toArray(new String[filters.size()]);
                metadata = new MetadataBuilder().withMetadata(metadata).putStringArray("radiator.filters", texts).build();
            }
            fields[i] = new StructField(column.name(), column.dataType(), column.nullable(), metadata);
        }
        return new StructType(fields);
    }

    /** Returns a schema with the ends of the log as of the first query. */
    private static StructType pinned(StructType schema, byte[] pin) {
        StructField[] fields = (StructField[]) schema.fields().clone();
        StructField first = fields[0];
        String text = java.util.Base64.getEncoder().encodeToString(pin);
        Metadata metadata = new MetadataBuilder().withMetadata(first.metadata()).putString("radiator.pin", text).build();
        fields[0] = new StructField(first.name(), first.dataType(), first.nullable(), metadata);
        return new StructType(fields);
    }

    private static AttributeReference attribute(String name, DataType type, boolean nullable, Metadata metadata) {
        ExprId id = NamedExpression$.MODULE$.newExprId();
        return new AttributeReference(name, type, nullable, metadata, id, seq(new ArrayList()));
    }

    /** Returns the metadata of a column that is made from another one, "of", by the reader. */
    private static Metadata part(String kind, String key, String of) {
        return new MetadataBuilder().putStringArray("radiator.part", new String[] {kind, key, of}).build();
    }

    private static boolean onlyAttributes(scala.collection.immutable.Seq expressions) {
        List all = list(expressions);
        for (int i = 0; i < all.size(); i++) {
            if (!(all.get(i) instanceof AttributeReference)) {
                return false;
            }
        }
        return true;
    }

    /**
     * The columns that a query uses. Where it uses only one key of a map, one field of a struct, or only the length of
     * the body, that is a column of its own, and the map, the struct or the body is not passed.
     */
    private static final class Parts extends scala.runtime.AbstractFunction1 {
        private final Map columns = new LinkedHashMap();  // ExprId -> column of the scan
        private final Map whole = new LinkedHashMap();  // ExprId -> column that is used as it is
        private final Map parts = new LinkedHashMap();  // ExprId and key -> column

        Parts(List output, List used) {
            for (int i = 0; i < output.size(); i++) {
                Attribute column = (Attribute) output.get(i);
                columns.put(column.exprId(), column);
            }
            for (int i = 0; i < used.size(); i++) {
                look((Expression) used.get(i));
            }
            for (int i = 0; i < used.size(); i++) {
                rewritten((Expression) used.get(i));  // finds the parts that are needed
            }
        }

        boolean whole(Attribute column) {
            return whole.containsKey(column.exprId());
        }

        List made() {
            return new ArrayList(parts.values());
        }

        public Object apply(Object expression) {
            return rewritten((Expression) expression);
        }

        /** Finds the columns that are used other than by a part of them. */
        private void look(Expression expression) {
            if (partOf(expression) != null) {
                return;
            }
            if (expression instanceof AttributeReference) {
                whole.put(((AttributeReference) expression).exprId(), expression);
            }
            List children = list(expression.children());
            for (int i = 0; i < children.size(); i++) {
                look((Expression) children.get(i));
            }
        }

        Expression rewritten(Expression expression) {
            String[] part = partOf(expression);
            if (part != null) {
                Attribute of = (Attribute) ((Expression) list(expression.children()).get(0));
                if (whole.containsKey(of.exprId())) {
                    return expression;
                }
                List key = Arrays.asList(new Object[] {of.exprId(), part[0], part[1]});
                Object known = parts.get(key);
                if (known == null) {
                    String name = part[0].equals("length") ? "length[body]" : of.name() + "[" + part[1] + "]";
                    Metadata made = part(part[0], part[1], part[2]);
                    known = attribute(name, expression.dataType(), expression.nullable(), made);
                    parts.put(key, known);
                }
                return (Expression) known;
            }
            List children = list(expression.children());
            boolean changed = false;
            for (int i = 0; i < children.size(); i++) {
                Expression child = (Expression) children.get(i);
                Expression made = rewritten(child);
                changed |= made != child;
                children.set(i, made);
            }
            return changed ? (Expression) expression.withNewChildren(seq(children)) : expression;
        }

        /** Returns kind, key, and the column that the reader decodes, if an expression is a part of a column, else null. */
        private String[] partOf(Expression expression) {
            if (expression instanceof GetMapValue) {
                Expression key = ((GetMapValue) expression).key();
                Attribute map = column(((GetMapValue) expression).child());
                if (map == null || !(key instanceof Literal) || !(((Literal) key).value() instanceof UTF8String)) {
                    return null;
                }
                String name = map.name();
                if (!name.equals("tags") && !name.equals("headers")) {
                    return null;
                }
                return new String[] {"key", ((Literal) key).value().toString(), name};
            }
            if (expression instanceof GetStructField) {
                Attribute struct = column(((GetStructField) expression).child());
                if (struct == null) {
                    return null;
                }
                StructType type = (StructType) struct.dataType();
                return new String[] {"field", type.fieldNames()[((GetStructField) expression).ordinal()], struct.name()};
            }
            if (expression instanceof Length || expression instanceof OctetLength) {
                Attribute body = column((Expression) list(expression.children()).get(0));
                return body != null && body.name().equals("body") ? new String[] {"length", "", "size"} : null;
            }
            return null;
        }

        private Attribute column(Expression expression) {
            if (!(expression instanceof AttributeReference)) {
                return null;
            }
            return (Attribute) columns.get(((AttributeReference) expression).exprId());
        }
    }

    // --- readers ----------------------------------------------------------------------------------------------------

    private Plans plansOf(PythonDataSourceV2 source) {
        synchronized (firstPlans) {
            Plans found = (Plans) firstPlans.get(source);
            if (found == null) {
                found = new Plans();
                firstPlans.put(source, found);
            }
            return found;
        }
    }

    /** The plans of one DataFrame. All of them end where the first one does. */
    private static final class Plans {
        byte[] first;  // the first partition of the first plan, which has the ends of the log
        final Map made = new LinkedHashMap();  // schema with filters -> PythonDataSourceReadInfo

        synchronized PythonDataSourceReadInfo get(
            UserDefinedPythonDataSource source, PythonDataSourceCreationResult created, StructType schema
        ) {
            String key = schema.json();
            PythonDataSourceReadInfo info = (PythonDataSourceReadInfo) made.get(key);
            if (info == null) {
                StructType asked = first == null ? schema : pinned(schema, first);
                info = source.createReadInfoInPython(created, asked, false);
                if (first == null) {
                    first = (byte[]) info.partitions().apply(0);
                }
                if (made.size() >= PLANS_MAX) {
                    made.clear();
                }
                made.put(key, info);
            }
            return info;
        }
    }

    private final class PrunedScan extends PythonScan {
        private final StructType schema;

        PrunedScan(PythonScan scan, StructType schema) throws Exception {
            super(
                new Source(scan, (PythonDataSourceV2) field(PythonScan.class, scan, "ds")), FORMAT, schema,
                (CaseInsensitiveStringMap) field(PythonScan.class, scan, "options"), new Filter[0]
            );
            this.schema = schema;
        }

        public Batch toBatch() {
            return new ColumnarBatches(super.toBatch());
        }

        public Scan.ColumnarSupportMode columnarSupportMode() {
            return Scan.ColumnarSupportMode.SUPPORTED;
        }

        public String description() {
            StringBuilder made = new StringBuilder("radiator columns=");
            made.append(Arrays.asList(schema.fieldNames()));
            String[] filters = schema.fields()[0].metadata().getStringArray("radiator.filters");
            return made.append(" filters=").append(Arrays.asList(filters)).toString();
        }
    }

    /** The partitions of Spark's scan, with readers that pass batches instead of rows. */
    private static final class ColumnarBatches implements Batch {
        private final Batch rows;

        ColumnarBatches(Batch rows) {
            this.rows = rows;
        }

        public InputPartition[] planInputPartitions() {
            return rows.planInputPartitions();
        }

        public PartitionReaderFactory createReaderFactory() {
            return new ColumnarReaderFactory((PythonPartitionReaderFactory) rows.createReaderFactory());
        }
    }

    /** The source of a pruned scan: plans with Python when the query runs, not when it is optimized. */
    private final class Source extends PythonDataSourceV2 {
        private final PythonDataSourceV2 whole;
        private final StructType wholeSchema;

        Source(PythonScan scan, PythonDataSourceV2 whole) {
            this.whole = whole;
            this.wholeSchema = scan.readSchema();
        }

        public UserDefinedPythonDataSource source() {
            return whole.source();
        }

        public PythonDataSourceReadInfo getOrCreateReadInfo(
            String shortName, CaseInsensitiveStringMap options, StructType schema, boolean isStreaming
        ) {
            PythonDataSourceCreationResult created = whole.getOrCreateDataSourceInPython(
                shortName, options, new scala.Some(wholeSchema)
            );
            return plansOf(whole).get(whole.source(), created, schema);
        }
    }

    // --- Scala and Java ---------------------------------------------------------------------------------------------

    private static Object field(Class of, Object instance, String name) throws Exception {
        Field found = of.getDeclaredField(name);
        found.setAccessible(true);
        return found.get(instance);
    }

    private static List list(scala.collection.immutable.Seq found) {
        List made = new ArrayList();
        scala.collection.Iterator each = found.iterator();
        while (each.hasNext()) {
            made.add(each.next());
        }
        return made;
    }

    private static List one(Object value) {
        List made = new ArrayList();
        made.add(value);
        return made;
    }

    private static scala.collection.immutable.Seq seq(List values) {
        scala.collection.immutable.List made = scala.collection.immutable.List$.MODULE$.empty();
        for (int i = values.size() - 1; i >= 0; i--) {
            made = made.prepended(values.get(i));
        }
        return made;
    }
}
